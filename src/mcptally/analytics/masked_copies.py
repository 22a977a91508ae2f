"""Finds the secrets in a store's files, and writes copies of the files without them."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from ahocorasick_rs import AhoCorasick, MatchKind

from mcptally.errors import StoreError, as_argument
from mcptally.redaction.arrow_masking import distinct_texts, replaced, replacements
from mcptally.redaction.display import secrets_of
from mcptally.redaction.token_checks import token_like
from mcptally.store.parts import copy_part
from mcptally.tables.calls import Calls

_JOINED: Final = frozenset(
    {"call_id", "attempt_of", "definition", "recording", "server", "session", "tool"}
)
"""Names of the columns by which tables are joined. Their values must be masked in the same way in
all tables."""


def copies(
    sources: Mapping[str, Path],
) -> Iterator[tuple[str, Path, Callable[[Path], None] | None]]:
    """Yield each table, its file, and a function that writes a masked copy.

    For a file without secrets, None is yielded in place of the function.

    Args:
        sources: maps the tables of one part to their files, starting with `calls`.
    """
    search = None
    joined = {name: _Searched() for name in _JOINED}
    for table, path in sources.items():
        try:
            texts = _texts_by_column(path)
        except (OSError, pa.ArrowException) as error:
            what = "is damaged" if path.exists() else "cannot be read"
            again = f"mcptally score ARCHIVE -o {as_argument(path.parent.parent)}"
            raise StoreError(f"{path}: {what}: {error}; rebuild it with: {again}") from error
        changed = {
            name: joined[name].replacements(found) if name in joined else replacements(found)
            for name, found in texts.items()
        }
        if table == Calls.name and (repeated := set(_recognisable(changed.values()))):
            search = AhoCorasick(sorted(repeated), MatchKind.LeftmostLongest)
        if search is not None:
            for name in texts.keys() - _JOINED:
                changed[name] |= _with_repeated_masked(search, texts[name], changed[name])
        new = {name: found for name, found in changed.items() if found}
        yield table, path, functools.partial(_write, path, new) if new else None


class _Searched:
    """Searches the strings in a column of several tables for secrets, each distinct string once."""

    def __init__(self) -> None:
        self._texts: set[Any] = set()
        self._changed: dict[Any, Any] = {}

    def replacements(self, texts: set[Any]) -> dict[Any, Any]:
        """Map each text that contains a secret to its masked version."""
        self._changed |= replacements(texts - self._texts)
        self._texts |= texts
        return {text: self._changed[text] for text in self._changed.keys() & texts}


def _write(path: Path, changed: Mapping[str, Mapping[Any, Any]], target: Path) -> None:
    copy_part(path, target, functools.partial(_masked, changed))


def _texts_by_column(path: Path) -> dict[str, set[Any]]:
    """Map each column of a file to its distinct strings, including those in nested values."""
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        return {name: distinct_texts(file.read(columns=[name]).column(0)) for name in names}


def _recognisable(changed: Iterable[Mapping[Any, Any]]) -> Iterable[str]:
    """Yield the secrets in these texts that are too long or too random to be ordinary words.

    Args:
        changed: maps of texts with secrets to their masked versions.
    """
    for text in {text for texts in changed for text in texts}:
        for secret in secrets_of(text):
            if len(secret) >= 16 or (len(secret) >= 6 and token_like(secret.encode())):
                yield secret


def _with_repeated_masked(
    search: AhoCorasick, texts: Iterable[Any], changed: Mapping[Any, Any]
) -> dict[Any, Any]:
    """Map each text that repeats a secret from another text to its masked version.

    Args:
        search: finds the secrets.
        texts: the texts.
        changed: the texts that were already masked, with their masked versions.
    """
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
    """Replace the strings in each column of a frame with their masked versions.

    Args:
        changed: for each column, maps strings to their masked versions.
        frame: the rows.
    """
    texts = [name for name in changed if frame.schema[name] == pl.String]
    rows = frame.with_columns(pl.col(name).replace(dict(changed[name])) for name in texts)
    for name in changed.keys() - texts:
        column = replaced(rows.get_column(name).to_arrow(), changed[name])
        rows = rows.with_columns(cast("pl.Series", pl.from_arrow(column)).alias(name))
    return rows
