"""Writes copies of a store's tables without secrets, for untrusted SQL to read.

STORE/.masked/<digest of the redaction rules>/<table>/<part>.parquet

SQL functions such as `reverse` and `hex` can turn a secret into a text that is not recognised as a
secret, so untrusted SQL can read only these copies. Each part is copied when a question first reads
its table; a part without secrets is hard-linked. If the store is not writable, the copies are
written to a temporary folder.

A secret that is recognised in a call by its name or form is also masked where the same part of the
store repeats the secret without its name, for example in a reply, an error or a finding.
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
"""Names of the tables that are masked independently. All other tables repeat text from `calls`."""


class MaskedTables:
    """The masked copies of a store's tables.

    Args:
        folder: the store's absolute path.
        files: the store's live files.
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
        """Maps the names of tables to the masked copies of their live files."""

    def __del__(self) -> None:
        if self._spill is not None:
            self._spill.remove()

    def write(self, tables: Collection[str]) -> None:
        """Write the copies of the given tables that do not exist yet.

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
        """Map the name of each part of the store to its files by table, with `calls` first."""
        found: dict[str, dict[str, Path]] = {}
        for table in (Calls.name, *sorted(self._parts.keys() - WITHOUT_PAYLOADS - {Calls.name})):
            for path in self._parts[table]:
                found.setdefault(path.name, {})[table] = path
        return found

    def _copy(self, sources: Mapping[str, Path]) -> None:
        """Copy the files of one part, unless all copies exist already.

        Args:
            sources: maps tables to the files of the part.
        """
        if all((self.folder / table / path.name).exists() for table, path in sources.items()):
            return
        from mcptally.analytics import masked_copies  # noqa: PLC0415  (loads polars)

        for table, path, copy in masked_copies.copies(sources):
            self._publish(table, path, copy)

    def _publish(self, table: str, path: Path, copy: Callable[[Path], None] | None) -> None:
        """Create a file's copy atomically; if `copy` is None, create a link to the file."""
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
        if not path.exists():  # a run has removed the folder
            target.unlink(missing_ok=True)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # the copies are on another file system, or on a file system without links
        with contextlib.suppress(FileNotFoundError):
            target.unlink()
        shutil.copyfile(source, target)


@functools.cache
def _rules_digest() -> str:
    """Return a digest of the code and the rules with which secrets are detected."""
    folder = resources.files("mcptally.redaction")
    files = sorted((file for file in folder.iterdir() if file.is_file()), key=lambda f: f.name)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
