"""Writes copies of a store's tables without secrets, for SQL from untrusted sources.

STORE/.masked/<digest of the redaction rules>/<table>/<part>.parquet

SQL functions can turn a secret into a text that no mask recognises (`reverse`, `hex`), so a
connection for untrusted SQL can only read these copies. A part is copied once, when a question
first reads its table; a part without secrets is hard-linked. If the store is not writable, the
copies are in a temporary folder.

A secret that is recognised by its name or form in a call is also masked where a part repeats it
without that name: in the reply, an error or a finding.
"""

import contextlib
import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from importlib import resources
from pathlib import Path
from typing import Final

from mcptally.analytics.spill import SpillFolder
from mcptally.errors import StoreError
from mcptally.store.manifest import MASKED, LiveFiles
from mcptally.tables.all_tables import TABLES
from mcptally.tables.calls import Calls
from mcptally.tables.recordings import Recordings
from mcptally.tables.tools import Tools
from mcptally.tables.usage import Usage

WITHOUT_PAYLOADS: Final = frozenset({Usage.name, Tools.name, Recordings.name})
"""Tables that are masked independently. All others repeat texts from `calls`."""


class MaskedTables:
    """The masked copies of one store's tables.

    Args:
        folder: the store, an absolute path.
        files: its live files.
    """

    def __init__(self, folder: Path, files: LiveFiles) -> None:
        self._parts: Final = {table.name: files[table.name] for table in TABLES}
        self._spill: SpillFolder | None = None
        self.folder = folder / MASKED / _rules_digest()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            writable = os.access(self.folder, os.W_OK)
        except OSError:
            writable = False
        if not writable:
            self._spill = SpillFolder()
            self.folder = self._spill.path
        self.files: Final = {
            table: [self.folder / table / path.name for path in paths]
            for table, paths in self._parts.items()
        }
        """The live files of the copies, by table."""

    def __del__(self) -> None:
        if self._spill is not None:
            self._spill.remove()

    def write(self, tables: Collection[str]) -> None:
        """Write the copies of these tables that do not exist yet.

        Raises:
            StoreError: the copies cannot be written.
        """
        try:
            for table in WITHOUT_PAYLOADS & set(tables):
                for path in self._parts[table]:
                    self._copy({table: path})
            if set(tables) - WITHOUT_PAYLOADS:
                for sources in self._with_calls().values():
                    self._copy(sources)
        except OSError as error:
            raise StoreError(
                f"{self.folder}: masked copies of the tables cannot be written: {error}; free "
                "some space, or use --raw"
            ) from error

    def _with_calls(self) -> Mapping[str, Mapping[str, Path]]:
        """Map each part's name to its files by table, beginning with `calls`."""
        found: dict[str, dict[str, Path]] = {}
        for table in (Calls.name, *sorted(self._parts.keys() - WITHOUT_PAYLOADS - {Calls.name})):
            for path in self._parts[table]:
                found.setdefault(path.name, {})[table] = path
        return found

    def _copy(self, sources: Mapping[str, Path]) -> None:
        """Copy the files of one part, by table, unless all copies exist."""
        if all((self.folder / table / path.name).exists() for table, path in sources.items()):
            return
        from mcptally.analytics import masked_copies  # noqa: PLC0415  (loads polars)

        for table, path, copy in masked_copies.copies(sources):
            self._publish(table, path, copy)

    def _publish(self, table: str, path: Path, copy: Callable[[Path], None] | None) -> None:
        """Put a file's copy (or, without `copy`, a link to the file) in place in one step."""
        target = self.folder / table / path.name
        draft = target.with_name(f"{path.stem}.{os.getpid()}.draft")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        try:
            if copy is not None:
                copy(draft)
            else:
                _link(path, draft)
            os.replace(draft, target)  # noqa: PTH105  (atomic on every system)
        finally:
            draft.unlink(missing_ok=True)
        if not path.exists():  # a run removed it
            target.unlink(missing_ok=True)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a different file system, or one without links
        with contextlib.suppress(FileNotFoundError):
            target.unlink()
        shutil.copyfile(source, target)


@functools.cache
def _rules_digest() -> str:
    """Return a digest of the code and rules that decide what a secret is."""
    folder = resources.files("mcptally.redaction")
    files = sorted((file for file in folder.iterdir() if file.is_file()), key=lambda f: f.name)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
