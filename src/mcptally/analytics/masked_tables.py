"""Writes copies of a store's tables without secrets, for SQL from untrusted sources.

STORE/.masked/<digest of the redaction rules>/<table>/<part>.parquet

A function of SQL can turn a secret into a text that no mask recognises (`reverse`, `hex`), so a
connection for untrusted SQL can read these copies and nothing else. A part is copied once, when a
question first reads its table, and a part without secrets is a hard link. If the store cannot be
written, the copies are in a temporary folder.

A secret that is recognised by its name or form in a call is also masked where a part repeats it
without that name: in the reply, an error or a finding.
"""

import contextlib
import functools
import hashlib
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final, cast

import polars as pl
import pyarrow.parquet as pq
from ahocorasick_rs import AhoCorasick, MatchKind

from mcptally.analytics.spill import SpillFolder
from mcptally.errors import StoreError
from mcptally.redaction.arrow_masking import distinct_texts, replaced, replacements
from mcptally.redaction.display import secrets_of
from mcptally.redaction.token_checks import token_like
from mcptally.store.manifest import MASKED, LiveFiles
from mcptally.store.parts import copy_part
from mcptally.tables.all_tables import TABLES
from mcptally.tables.calls import Calls
from mcptally.tables.recordings import Recordings
from mcptally.tables.tools import Tools
from mcptally.tables.usage import Usage

WITHOUT_PAYLOADS: Final = frozenset({Usage.name, Tools.name, Recordings.name})
"""Tables that are masked on their own. All others repeat texts of `calls`."""

_JOINED: Final = frozenset(
    {"call_id", "attempt_of", "definition", "recording", "server", "session", "tool"}
)
"""Columns that tables are joined by: a value must be masked in the same way in all of them."""


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
            StoreError: they cannot be written.
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
        """Name of each part → its files, by table; those of `calls` come first."""
        found: dict[str, dict[str, Path]] = {}
        for table in (Calls.name, *sorted(self._parts.keys() - WITHOUT_PAYLOADS - {Calls.name})):
            for path in self._parts[table]:
                found.setdefault(path.name, {})[table] = path
        return found

    def _copy(self, sources: Mapping[str, Path]) -> None:
        """Copy the files of one part, by table, unless all copies exist."""
        if all((self.folder / table / path.name).exists() for table, path in sources.items()):
            return
        search = None
        for table, path in sources.items():
            texts = _texts_by_column(path)
            changed = {name: replacements(found) for name, found in texts.items()}
            if table == Calls.name and (repeated := set(_recognisable(changed.values()))):
                search = AhoCorasick(sorted(repeated), MatchKind.LeftmostLongest)
            if search is not None:
                for name in texts.keys() - _JOINED:
                    changed[name] |= _with_repeated_masked(search, texts[name], changed[name])
            self._publish(table, path, {name: new for name, new in changed.items() if new})

    def _publish(self, table: str, path: Path, changed: Mapping[str, Mapping[Any, Any]]) -> None:
        """Put the copy of a file into its place in one step."""
        target = self.folder / table / path.name
        draft = target.with_name(f"{path.stem}.{os.getpid()}.draft")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        try:
            if changed:
                copy_part(path, draft, functools.partial(_masked, changed))
            else:
                _link(path, draft)
            os.replace(draft, target)  # noqa: PTH105  (atomic on every system)
        finally:
            draft.unlink(missing_ok=True)
        if not path.exists():  # a run removed it, perhaps to forget it
            target.unlink(missing_ok=True)


def _texts_by_column(path: Path) -> dict[str, set[Any]]:
    """Name of each column of a file → its distinct texts, at any depth."""
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        return {name: distinct_texts(file.read(columns=[name]).column(0)) for name in names}


def _recognisable(changed: Iterable[Mapping[Any, Any]]) -> Iterable[str]:
    """The secrets in texts that are too long or too random to be an ordinary word elsewhere."""
    for text in {text for texts in changed for text in texts}:
        for secret in secrets_of(text):
            if len(secret) >= 16 or (len(secret) >= 6 and token_like(secret.encode())):
                yield secret


def _with_repeated_masked(
    search: AhoCorasick, texts: Iterable[Any], changed: Mapping[Any, Any]
) -> dict[Any, Any]:
    """Each text that has a secret of another text → the text without it."""
    found = {}
    for text in texts:
        masked = changed.get(text, text)
        if isinstance(masked, str) and (matches := search.find_matches_as_indexes(masked)):
            kept, last = [], 0
            for _, start, end in matches:
                kept += [masked[last:start], "[redacted:secret]"]
                last = end
            found[text] = "".join([*kept, masked[last:]])
    return found


def _masked(changed: Mapping[str, Mapping[Any, Any]], frame: pl.DataFrame) -> pl.DataFrame:
    """The rows with texts replaced, by column."""
    texts = [name for name in changed if frame.schema[name] == pl.String]
    rows = frame.with_columns(pl.col(name).replace(dict(changed[name])) for name in texts)
    for name in changed.keys() - texts:
        column = replaced(rows.get_column(name).to_arrow(), changed[name])
        rows = rows.with_columns(cast("pl.Series", pl.from_arrow(column)).alias(name))
    return rows


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        with contextlib.suppress(FileNotFoundError):
            target.unlink()
        shutil.copyfile(source, target)


@functools.cache
def _rules_digest() -> str:
    """A digest of the code and rules that decide what a secret is."""
    folder = resources.files("mcptally.redaction")
    files = sorted((file for file in folder.iterdir() if file.is_file()), key=lambda f: f.name)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
