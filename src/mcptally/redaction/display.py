"""Masks secrets and control characters in recorded text before it leaves the program.

A recording made without redaction holds secrets, and so does its store. Whatever a command prints
or writes for others is masked here: answers, explanations, exports, pages, reports for CI, messages
on stderr. The rules are those of the recorder's default policy (`record.redact`). `--raw`, or
`raw=True`, leaves out the masking of `query`, `show`, `compare` and `export`.

Not masked are the store's own files and what the library returns as relations and rows
(`Store.ask`, `Store.sql`, `show.explain`): they stay inside the caller's program.

What is masked stays what it was: JSON text is JSON, with `[redacted:NAME]` for the secret.
"""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from mcptally.redaction.policy import policy

if TYPE_CHECKING:
    import pyarrow as pa

LIMIT: Final = 2000
"""Characters kept of a text."""

# C0, C1, soft hyphen; Arabic and Mongolian marks; fillers that look empty; zero-width and
# bidirectional ones; line separators; selectors (not emoji's own); surrogates, tags; no characters.
CONTROLS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Characters that a terminal acts on, that nobody sees, or that change the order of others."""


def escaped(text: str) -> str:
    """JSON text with every character of `CONTROLS` as an escape: the same values, and harmless."""
    return CONTROLS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    """A character as JSON escapes it; line breaks between values stay."""
    char = found[0]
    return char if char in "\n\r\t" else json.dumps(char)[1:-1]


def clean(text: str) -> str:
    """`text` on one line, with nothing in it that a terminal would act on."""
    return CONTROLS.sub(lambda m: " " if m[0] in "\n\r\t" else "\N{REPLACEMENT CHARACTER}", text)


def clean_lines(text: str) -> str:
    """`text` with the lines it has, each of them `clean`."""
    return "\n".join(map(clean, text.split("\n")))


def as_message(text: str) -> str:
    """A message for a person, which may quote recorded text: masked, every line `clean`."""
    return clean_lines(hidden(text))


def hidden(text: str) -> str:
    """`text` with token-like values replaced by `[redacted:NAME]`, however long it is.

    JSON text stays JSON text.
    """
    data = text.encode("utf-8", "replace")
    found = _hidden(data)
    return text if found is data else found.decode("utf-8", "replace")


def _hidden(data: bytes) -> bytes:
    """`data` masked; the same object where there is nothing to mask."""
    default = policy("default")
    start = data.lstrip()[:1]
    if start == b"[" and b"--" in data and (command := _command(data)) is not None:
        words, count = default.argv(command)
        data = json.dumps(words, ensure_ascii=False).encode("utf-8", "replace") if count else data
    found, count = (default.json if start in _JSON else default.text)(data)
    return found if count else data


_JSON: Final = frozenset({b"{", b"[", b'"'})


def _command(data: bytes) -> list[str] | None:
    """The words of a command line that is written as JSON."""
    try:
        return msgspec.json.decode(data, type=list[str])
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def masked(value: Any) -> Any:
    """`value` with every text in it masked: in lists, tuples, and values and keys of dicts."""
    if isinstance(value, str):
        return hidden(value)
    if isinstance(value, bytes):
        return _hidden(value)
    if type(value) in {list, tuple}:
        return type(value)(map(masked, value))
    if isinstance(value, dict):
        return {masked(key): masked(each) for key, each in value.items()}
    return value


_Rows = TypeVar("_Rows", "pa.Table", "pa.RecordBatch")


def masked_rows(rows: _Rows) -> _Rows:
    """A table or batch with its texts, however deep, and its columns' names masked.

    Each distinct text is looked at once.
    """
    for place, name in enumerate(rows.schema.names):
        column = rows.column(place)
        changed = {
            text: told for text in set(_texts(column)) if text and (told := masked(text)) != text
        }
        if changed or hidden(name) != name:
            rows = rows.set_column(place, hidden(name), _replaced(column, changed))
    return rows


def _texts(column: "pa.Array | pa.ChunkedArray") -> Iterator[str | bytes | None]:
    """Every text or binary value of a column, nested ones too; each at least once."""
    import pyarrow as pa  # noqa: PLC0415  (the recorder does without)
    import pyarrow.compute as pc  # noqa: PLC0415

    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        for chunk in column.chunks:
            yield from _texts(chunk)
    elif pa.types.is_dictionary(kind):
        yield from _texts(column.dictionary)
    elif _is_text(kind):
        yield from pc.unique(column).to_pylist()
    elif pa.types.is_map(kind):
        yield from _texts(column.keys)
        yield from _texts(column.items)
    elif pa.types.is_struct(kind):
        for field in column.flatten():
            yield from _texts(field)
    elif pa.types.is_nested(kind) and not pa.types.is_union(kind):
        yield from _texts(column.flatten())


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa  # noqa: PLC0415  (as above)

    tests = (
        *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        *(pa.types.is_binary, pa.types.is_large_binary),
    )
    return any(test(kind) for test in tests)


def _replaced(column: Any, changed: dict[Any, Any]) -> Any:
    """The column with these texts replaced, in place of each."""
    import pyarrow as pa  # noqa: PLC0415  (as above)

    if not changed:
        return column

    def within(value: Any) -> Any:
        if isinstance(value, str | bytes):
            return changed.get(value, value)
        if type(value) in {list, tuple}:
            return type(value)(map(within, value))
        return {k: within(v) for k, v in value.items()} if isinstance(value, dict) else value

    if isinstance(column, pa.ChunkedArray):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return pa.chunked_array([_replaced(each, changed) for each in column.chunks], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_text(column.type) and not pa.types.is_string_view(column.type):
        encoded = column.dictionary_encode()
        values = pa.array(within(encoded.dictionary.to_pylist()), column.type)
        return values.take(encoded.indices)
    return pa.array(within(column.to_pylist()), column.type)


def sanitised(text: str, limit: int = LIMIT) -> str:
    """`text` with token-like values replaced by `[redacted:NAME]`, cut to `limit` characters."""
    told = hidden(text)
    if len(told) <= limit:
        return told
    return f"{told[:limit]}… ({len(told) - limit} more characters)"
