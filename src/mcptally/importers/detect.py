"""Detects the format of a log file from its first bytes and lines."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from mcptally.importers import registry, sqlite_tables
from mcptally.importers.registry import FORMATS, LOOKS
from mcptally.plural import count
from mcptally.transcript.discover import describe_error
from mcptally.transcript.files import READ_ERRORS, open_stream
from mcptally.wire.json_text import decode_or_none

_HEAD: Final = 256 << 10
_LINES: Final = 200
_LEAST_LINES: Final = 10
_MOST: Final = 32 << 20
"""Maximum number of bytes read to get `_LEAST_LINES` lines from a file with long lines; a session
may start with an image."""


class _Top(msgspec.Struct):
    log: msgspec.Raw = msgspec.Raw()


_LOG: Final = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"log"\s*:')
_PRINTED: Final = re.compile(rb'(?:\xef\xbb\xbf)?[\[{]\s*\n\s*["{]')
_TOP: Final = msgspec.json.Decoder(_Top)

TRANSCRIPT: Final = registry.TRANSCRIPT.name

_MOST_LINES: Final = frozenset({"jsonrpc"})
"""Formats that must match at least half of the lines, because other logs quote lines in these
formats."""


def detect_format(path: Path) -> str | None:
    """Return the name of a file's format: `transcript` for our own, None if it is unknown.

    Raises:
        UnreadableError: the file cannot be opened.
    """
    head, _ = _head(path)
    if head.startswith(sqlite_tables.MAGIC):
        return _by_tables(path)
    lines = head.split(b"\n")[:_LINES]
    if _is_har(head, lines[0]):
        return "har"
    # In a pretty-printed document, an object spans several lines.
    return _by_lines([head] if _PRINTED.match(head) else lines)


def is_damaged(path: Path) -> bool:
    """Return whether the start of a file cannot be read.

    Raises:
        UnreadableError: the file cannot be opened.
    """
    return _head(path)[1] is not None


def _head(path: Path) -> tuple[bytes, Exception | None]:
    """Return the first decompressed bytes, and the error that ended reading a damaged file."""
    pieces: list[bytes] = []
    size = lines = 0
    damage = None
    with open_stream(path) as stream:
        try:
            # Use `read1`: `read` would discard the data that was decompressed before an error.
            while (size < _HEAD or (lines < _LEAST_LINES and size < _MOST)) and (
                piece := cast("Any", stream).read1(_HEAD)
            ):
                pieces.append(piece)
                size += len(piece)
                lines += piece.count(b"\n")
        except READ_ERRORS as error:
            damage = error
    return b"".join(pieces), damage


def _is_har(head: bytes, first: bytes) -> bool:
    """Return whether a file is one JSON object with a member `log`, not JSON Lines."""
    if _LOG.match(head):
        return True
    top = decode_or_none(_TOP, first)
    if top is None:  # the object spans several lines
        return head.lstrip()[:1] == b"{" and b'"entries"' in head and b'"log"' in head
    return len(top.log) > 0


def recognised_contents() -> dict[str, str]:
    """Map each format's name to a description of the content that identifies its files."""
    others = (form for form in FORMATS.values() if form not in LOOKS)
    return {form.name: form.looks_for for form in (*LOOKS, *others)}


def why_unknown(path: Path) -> str:
    """Explain why no format was detected, and name the formats that match some of the lines.

    Raises:
        UnreadableError: the file cannot be opened.
    """
    head, damage = _head(path)
    if damage is not None:
        return f"the file is damaged: {describe_error(damage)}"
    if head.startswith(sqlite_tables.MAGIC):
        return "an SQLite database that is not mcphawk's or opencode's"
    lines = head.split(b"\n")[:_LINES]
    filled = sum(bool(line.strip()) for line in lines)
    if not filled:
        return "the file is empty"
    looked = f"looked at {count(filled, 'line')}"
    if votes := _votes(lines):
        near = ", ".join(f"{n:,} {'look' if n > 1 else 'looks'} like {name}" for name, n in votes)
        return f"{looked}: {near}, which is not enough"
    return f"{looked}: none matches a known format"


def _votes(lines: Iterable[bytes]) -> list[tuple[str, int]]:
    """Return each format and its number of matching lines, in descending order of the number."""
    votes: dict[str, int] = {}
    for line in lines:
        for look in LOOKS:
            if look.matches(line):
                votes[look.name] = votes.get(look.name, 0) + 1
                break
    return sorted(votes.items(), key=lambda vote: -vote[1])


def _by_lines(lines: list[bytes]) -> str | None:
    """Return the format that matches the most lines.

    If several formats match the same number of lines, the first of them is returned.
    """
    votes = _votes(lines)
    if not votes:
        return None
    found, most = votes[0]
    filled = sum(bool(line.strip()) for line in lines)
    return None if found in _MOST_LINES and 2 * most < filled else found


def _by_tables(path: Path) -> str | None:
    """Return the format whose tables an SQLite database has, or None."""
    from mcptally.importers.formats import mcphawk, opencode  # noqa: PLC0415  (few files need it)

    tables = {"mcphawk": mcphawk.TABLES, "opencode": opencode.TABLES}
    return next((f for f, its in tables.items() if sqlite_tables.is_database(path, its)), None)
