"""Masks secrets and control characters in recorded text before it leaves the program.

A recording made without redaction contains secrets, and so does its store. Everything that a
command prints or writes for others is masked here: answers, explanations, exports, pages, reports
for CI, messages on stderr. The rules belong to the default redaction policy (`redaction.policy`).
`--raw` and `raw=True` turn masking off for `query`, `show`, `compare` and `export`.

The store's own files are not masked. The relations and rows that the library returns (`Store.ask`,
`Store.sql`, `Store.show`) are not masked either, because they stay inside the caller's program;
only their display in a notebook is masked.

Masking keeps the format: JSON text stays JSON text, with `[redacted:NAME]` in place of a secret.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from mcptally.redaction.policy import policy

_Text = TypeVar("_Text", str, bytes)

LIMIT: Final = 2000
"""Default maximum length of a text returned by `mask_and_cut`, in characters."""

# C0 and C1 controls, soft hyphen; Arabic and Mongolian marks; fillers that look empty; zero-width
# and bidirectional controls; line separators; variation selectors (except those of emoji);
# surrogates; tags; noncharacters.
CONTROL_CHARACTERS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Matches characters that control a terminal, are invisible, or reorder other characters."""


def escape_controls(text: str) -> str:
    """Return JSON text with `CONTROL_CHARACTERS` escaped; the decoded values stay the same."""
    return CONTROL_CHARACTERS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    """Return a character's JSON escape; leave tabs and line breaks between values unchanged."""
    char = found[0]
    return char if char in "\n\r\t" else json.dumps(char)[1:-1]


def clean_line(text: str) -> str:
    """Return `text` on one line; each control character becomes a space or U+FFFD."""
    return CONTROL_CHARACTERS.sub(
        lambda m: " " if m[0] in "\n\r\t" else "\N{REPLACEMENT CHARACTER}", text
    )


def indented(text: str, *, sort_keys: bool = False) -> str:
    """Return JSON text indented; return other text unchanged."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False, sort_keys=sort_keys)
    except (ValueError, RecursionError):
        return text


def clean_lines(text: str) -> str:
    """Return `text` with `clean_line` applied to each line; line breaks are kept."""
    return "\n".join(map(clean_line, text.split("\n")))


def as_message(text: str) -> str:
    """Remove secrets and control characters from a message, which may quote recorded text."""
    return clean_lines(mask_text(text))


def mask_text(text: str) -> str:
    """Return a text of any length with every secret replaced by `[redacted:NAME]`.

    JSON text stays JSON text.
    """
    data = _encoded(text)
    found = _hidden(data)
    return text if found is data else found.decode("utf-8", "replace")


def _hidden(data: bytes) -> bytes:
    """Return `data` with its secrets masked; if it has no secrets, return the same object."""
    default = policy("default")
    start = data.lstrip()[:1]
    if start == b"[" and b"--" in data and (command := _command(data)) is not None:
        words, count = default.argv(command)
        data = json.dumps(words, ensure_ascii=False).encode("utf-8", "replace") if count else data
    found, count = (default.json if start in _JSON else default.text)(data)
    return found if count else data


def with_hits(texts: Iterable[_Text]) -> list[_Text]:
    """Return the strings that may contain a secret, using a single search over all the strings."""
    every = list(texts)
    numbers = policy("default").frames_with_hits([_encoded(text) for text in every])
    return [every[number] for number in numbers]


def secrets_of(text: str | bytes) -> list[str]:
    """Return the secrets that `mask_text` replaces in a text, with their JSON escapes decoded."""
    return policy("default").secrets(_encoded(text))


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "replace")


_JSON: Final = frozenset({b"{", b"[", b'"'})


def _command(data: bytes) -> list[str] | None:
    """Return the words of a command line written as a JSON array; None if the text is not one."""
    try:
        return msgspec.json.decode(data, type=list[str])
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def mask_value(value: Any) -> Any:
    """Return `value` with `mask_text` applied to all list items, dict keys and dict values."""
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, bytes):
        return _hidden(value)
    if type(value) in {list, tuple}:
        return type(value)(map(mask_value, value))
    if isinstance(value, dict):
        return {mask_value(key): mask_value(each) for key, each in value.items()}
    return value


def mask_and_cut(text: str, limit: int = LIMIT) -> str:
    """Return `text` with every secret replaced by `[redacted:NAME]`, cut to `limit` characters."""
    return cut(mask_text(text), limit)


def cut(text: str, limit: int = LIMIT) -> str:
    """Truncate text to `limit` characters, and append a note saying how many were omitted."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit} more characters)"
