"""JSON in a result, written out as lines `path = value` that a pattern can read.

`{"ok": false, "items": [{"error": "no"}]}` becomes `ok = false` and `items[].error = "no"`. A key
that is no plain word is written `*`. Strings that hold JSON themselves are opened, because
servers put envelopes into envelopes. Each distinct text is parsed once.
"""

import functools
import itertools
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import polars as pl

MAX_LINES: Final = 160
"""Lines written of one value: an envelope says early that it failed."""
MAX_DEPTH: Final = 6
MAX_STRING: Final = 400
"""Characters written of one string."""
MAX_TEXT: Final = 200_000
"""Characters beyond which a text is not parsed: it carries data, not an error."""

_WORD: Final = re.compile(r"[A-Za-z_$][\w$-]{0,40}\Z")
_PAIR: Final = re.compile(
    r'"([A-Za-z_]\w{0,40})"\s*:\s*("(?:[^"\\]|\\.){0,400}"?|true|false|null|-?\d+)'
)
_DECODER: Final = msgspec.json.Decoder()
_OPENS: Final = ("{", "[")
_CLOSES: Final = ("}", "]")
_CONTAINERS: Final = frozenset((dict, list))

LIKELY: Final = (
    r"(?i)err|fail|exception|fault|success|\bok\b|invalid|denied|reject|\bcode\b|status|message|"
    r"reason|unable|could not|cannot|错误|錯誤|失败|失敗"
)
"""What a text that is worth parsing contains."""


def lines(texts: pl.Series) -> pl.Series:
    """For every text its lines, or an empty string if it is not JSON or says nothing of failure."""
    distinct = texts.unique().drop_nulls()
    likely = distinct.filter(
        distinct.str.head(1).is_in(list(_OPENS))
        & (distinct.str.len_chars() <= MAX_TEXT)
        & distinct.str.head(4000).str.contains(LIKELY)
    )
    written = pl.Series([_written(text) for text in likely], dtype=pl.String)
    known = pl.DataFrame({"text": likely, "lines": written}, schema_overrides={"text": pl.String})
    return (
        texts.to_frame("text")
        .join(known, on="text", how="left", maintain_order="left")["lines"]
        .fill_null("")
    )


def _written(text: str) -> str:
    try:
        value = _DECODER.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # Cut off or not quite JSON: its pairs in order, without their paths.
        pairs = _PAIR.findall(text[:4000])
        return "\n".join(f"{key} = {' '.join(value.split())}" for key, value in pairs[:MAX_LINES])
    found: list[str] = []
    _write("", value, 0, found)
    return "\n".join(found[:MAX_LINES])


def _write(path: str, value: Any, depth: int, found: list[str]) -> None:
    """Scalars of one level before what lies deeper: a verdict is written beside the data."""
    if value.__class__ is str:
        try:
            value = _DECODER.decode(value.encode("utf-8", "surrogatepass"))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found.append(_line(path, value))
            return
    if not value:
        found.append(f"{path or '.'} = {'{}' if value.__class__ is dict else '[]'}")
    if depth >= MAX_DEPTH:
        return
    deeper = []
    for name, child in _children(path, value):
        if child.__class__ in _CONTAINERS or (child.__class__ is str and _is_json(child)):
            deeper.append((name, child))
        else:
            found.append(_line(name, child))
            if len(found) >= MAX_LINES:
                return
    for name, child in deeper:
        _write(name, child, depth + 1, found)
        if len(found) >= MAX_LINES:
            return


def _children(path: str, value: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        return zip(itertools.repeat(f"{path}[]"), value[:MAX_LINES])
    if path:
        return zip([f"{path}.{_name(key)}" for key in value], value.values(), strict=True)
    return zip(map(_name, value), value.values(), strict=True)


@functools.lru_cache(maxsize=4096)
def _name(key: str) -> str:
    return key if _WORD.match(key) else "*"


def _is_json(value: str) -> bool:
    return value.lstrip()[:1] in _OPENS and value.rstrip()[-1:] in _CLOSES


def _line(path: str, value: Any) -> str:
    if value.__class__ is str:
        return f'{path} = "{" ".join(value[:MAX_STRING].split())}"'
    if value is None:
        return f"{path} = null"
    return f"{path} = {value}" if value.__class__ is not bool else f"{path} = {str(value).lower()}"
