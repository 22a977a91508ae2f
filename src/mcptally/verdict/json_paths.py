"""Writes JSON texts as lines `path = value`, so that patterns can match them.

`{"ok": false, "items": [{"error": "no"}]}` becomes `ok = false` and `items[].error = "no"`. A key
that is not a plain word becomes `*`. Strings that contain JSON are parsed too, because servers nest
JSON envelopes. Each distinct text is parsed once.
"""

import functools
import itertools
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.tables.arrow import matches
from mcptally.tables.queries import run_query

MAX_LINES: Final = 160
"""Maximum number of lines written for a text. Envelopes report failures at the start."""
MAX_DEPTH: Final = 6
"""Maximum depth of values that are written."""
MAX_STRING: Final = 400
"""Maximum number of characters that are written of a string."""
MAX_TEXT: Final = 200_000
"""Maximum length in characters of a text that is parsed; longer texts contain data, not an error.
"""

_WORD: Final = re.compile(r"[A-Za-z_$][\w$-]{0,40}\Z")
_PAIR: Final = re.compile(
    r'"([A-Za-z_]\w{0,40})"\s*:\s*'
    # The first alternative matches strings without escapes, and is faster than the second.
    r'("[^"\\]{0,400}"|"(?:[^"\\]|\\.){0,400}"?|true|false|null|-?\d+)'
)
_DECODER: Final = msgspec.json.Decoder()
_OPENS: Final = ("{", "[")
_CLOSES: Final = ("}", "]")
_CLOSES_BYTES: Final = (b"}", b"]")
_CONTAINERS: Final = frozenset((dict, list))
_NUMBERS: Final = frozenset((int, float))
_LITERALS: Final = {None: "null", True: "true", False: "false"}

LIKELY: Final = (
    (
        r"(?i)err|fail|exception|fault|success|invalid|denied|reject|status|message|"
        r"reason|unable|could not|cannot|problem|cause|detail|stderr|exit_?code|return_?code|"
        r"<html|错误|錯誤|失败|失敗"
    ),
    r"(?i)\b(?:ok|code|why|info)\b|^\{\s*\"\w{2,12}\"\s*:\s*false\s*\}",
)
"""Patterns for certain words; a text is parsed only if at least one of the patterns matches.

There are two patterns because a single one with `\\b` and all words takes thirty times as long."""


def lines(texts: pl.Series) -> pl.Series:
    """Return the lines of each text; empty if it is not JSON or does not match `LIKELY`."""
    if texts.null_count() == len(texts):
        return pl.Series([""]).new_from_index(0, len(texts))
    text = pl.col("text")
    words, whole_words = (matches(text.str.head(4000), pattern) for pattern in LIKELY)
    frame = texts.to_frame("text")
    likely = (
        frame.lazy()
        .drop_nulls()
        .unique()
        .filter(text.str.head(1).is_in(list(_OPENS)) & (text.str.len_chars() <= MAX_TEXT))
        .filter(words | whole_words)
        .pipe(run_query)
        .get_column("text")
    )
    # Pass bytes, because the decoder would have to encode non-ASCII text again.
    written = pl.Series([_written(text) for text in likely.cast(pl.Binary)], dtype=pl.String)
    known = pl.LazyFrame({"text": likely, "lines": written})
    return (
        frame.lazy()
        .join(known, on="text", how="left", maintain_order="left")
        .select(pl.col("lines").fill_null(""))
        .pipe(run_query)
        .get_column("lines")
    )


def _written(text: bytes) -> str:
    """Return the lines `path = value` for one JSON text."""
    # Decode only texts that end with a closing bracket; all other texts are truncated.
    if text.rstrip().endswith(_CLOSES_BYTES):
        try:
            value = _DECODER.decode(text)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            written: list[str] = []
            _write("", value, 0, written)
            return "\n".join(written[:MAX_LINES])
    # Truncated or invalid JSON: write its pairs in order, without paths.
    pairs = _PAIR.findall(text.decode()[:4000])
    return "\n".join(f"{key} = {' '.join(value.split())}" for key, value in pairs[:MAX_LINES])


def _write(path: str, value: Any, depth: int, written: list[str]) -> None:
    """Append the lines for `value` to `written`.

    The scalars of a level precede its nested values, because a status is next to the data, not
    inside.
    """
    if value.__class__ is str:
        try:
            value = _DECODER.decode(value.encode("utf-8", "surrogatepass"))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            written.append(_string_line(path, value))
            return
    if not value:
        written.append(f"{path or '.'} = {'{}' if value.__class__ is dict else '[]'}")
    if depth >= MAX_DEPTH:
        return
    nested = []
    for name, child in _children(path, value):
        kind = child.__class__
        if kind is str:
            if child.lstrip().startswith(_OPENS) and child.rstrip().endswith(_CLOSES):
                nested.append((name, child))
                continue
            line = _string_line(name, child)
        elif kind in _CONTAINERS:
            nested.append((name, child))
            continue
        else:
            line = f"{name} = {child if kind in _NUMBERS else _LITERALS[child]}"
        written.append(line)
    for name, child in nested:
        if len(written) >= MAX_LINES:
            return
        _write(name, child, depth + 1, written)


def _children(path: str, value: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each member or item."""
    if isinstance(value, list):
        return zip(itertools.repeat(f"{path}[]"), value[:MAX_LINES])
    return zip(_paths(path, tuple(value)), value.values(), strict=True)


@functools.lru_cache(maxsize=256)
def _paths(path: str, keys: tuple[str, ...]) -> list[str]:
    """Return the path of each member of an object.

    The result is cached, because the rows of a table have the same members.
    """
    names = [key if _WORD.match(key) else "*" for key in keys]
    return [f"{path}.{name}" for name in names] if path else names


def _string_line(path: str, value: str) -> str:
    return f'{path} = "{" ".join(value[:MAX_STRING].split())}"'
