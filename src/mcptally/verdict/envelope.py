"""JSON in a result, written out as lines `path = value` that a pattern can read.

`{"ok": false, "items": [{"error": "no"}]}` becomes `ok = false` and `items[].error = "no"`. A key
that is no plain word is written `*`. Strings that hold JSON themselves are opened, because
servers put envelopes into envelopes. Each distinct text is parsed once.
"""

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
    for line in _walk("", value, 0):
        found.append(line)
        if len(found) >= MAX_LINES:
            break
    return "\n".join(found)


def _walk(path: str, value: Any, depth: int) -> Iterator[str]:
    """Scalars of one level before what lies deeper: a verdict is written beside the data."""
    if isinstance(value, str) and value.lstrip()[:1] in _OPENS and len(value) <= MAX_TEXT:
        try:
            value = _DECODER.decode(value.encode("utf-8", "surrogatepass"))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            yield _line(path, value)
            return
    if not isinstance(value, dict | list):
        yield _line(path, value)
        return
    if not value:
        yield f"{path or '.'} = {'{}' if isinstance(value, dict) else '[]'}"
        return
    if depth >= MAX_DEPTH:
        return
    deeper = []
    for name, child in _children(path, value):
        if isinstance(child, dict | list) or _is_json(child):
            deeper.append((name, child))
        else:
            yield _line(name, child)
    for name, child in deeper:
        yield from _walk(name, child, depth + 1)


def _children(path: str, value: dict[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for item in value[:MAX_LINES]:
            yield f"{path}[]", item
        return
    for key, item in value.items():
        name = key if _WORD.match(key) else "*"
        yield f"{path}.{name}" if path else name, item


def _is_json(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip()[:1] in _OPENS and value.rstrip()[-1:] in "}]"


def _line(path: str, value: Any) -> str:
    if isinstance(value, str):
        flat = " ".join(value[:MAX_STRING].split())
        return f'{path or "."} = "{flat}"'
    if value is None or isinstance(value, bool):
        return f"{path or '.'} = {str(value).lower() if value is not None else 'null'}"
    return f"{path or '.'} = {value}"
