"""Detects the format of a file from its first bytes and lines."""

import contextlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from mcptally.transcript.files import READ_ERRORS, open_stream

_HEAD: Final = 256 << 10
_LINES: Final = 200
_LEAST_LINES: Final = 10
_MOST: Final = 32 << 20
"""Of a file whose lines are long (a session may begin with an image), up to so many bytes are read
until they have `_LEAST_LINES` lines."""

_CLAUDE_DESKTOP: Final = re.compile(
    rb"\d{4}-\d\d-\d\dT\S+Z? (?:\[[^\]\n]+\] \[(?:info|debug|warn|error)\]|"
    rb"\[(?:info|debug|warn|error)\]) "
)
_VSCODE: Final = re.compile(
    rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \[\w+\] (?:\[(?:editor -> server|server -> editor|"
    rb"Client Says|Server Says|server stderr)\]|Starting server|Connection state|Discovered )"
)


def _any(pattern: re.Pattern[bytes]) -> Callable[[bytes], bool]:
    return lambda line: pattern.match(line) is not None


def _keys(*keys: str) -> Callable[[bytes], bool]:
    """A test for JSON objects with all of these keys, at any depth (searched as bytes)."""
    wanted = [f'"{key}"'.encode() for key in keys]
    return lambda line: line.lstrip()[:1] == b"{" and all(key in line for key in wanted)


class _Top(msgspec.Struct):
    log: msgspec.Raw = msgspec.Raw()


_LOG: Final = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"log"\s*:')
_TOP: Final = msgspec.json.Decoder(_Top)

TRANSCRIPT: Final = "transcript"

_LOOKS: Final[tuple[tuple[str, Callable[[bytes], bool]], ...]] = (
    (TRANSCRIPT, _keys("v", "event", "recording", "seq", "ts_ns")),
    ("claude-desktop", _any(_CLAUDE_DESKTOP)),
    ("vscode", _any(_VSCODE)),
    ("mcpsnoop", _keys("session_id", "server_label", "direction", "transport")),
    ("codex", lambda line: b'"type":"session_meta"' in line or b"mcp_tool_call" in line),
    ("claude-code", _keys("sessionId", "cwd")),
    ("otlp", lambda line: b'"resourceSpans"' in line or b'"resource_spans"' in line),
    (
        "jsonrpc",
        lambda line: line.lstrip(b"\xef\xbb\xbf \t")[:1] in {b"{", b"["} and b"jsonrpc" in line,
    ),
)
_MOST_LINES: Final = frozenset({"jsonrpc"})
"""Formats that at least half of the lines must look like: other logs mention their messages."""


def detect_format(path: Path) -> str | None:
    """Name of the format of a file; `transcript` for our own, None if it is unknown.

    Raises:
        UnreadableError: the file cannot be opened.
    """
    head = _head(path)
    if head.startswith(b"SQLite format 3\0"):
        return "mcphawk" if _is_hawk(path) else None
    lines = head.split(b"\n")[:_LINES]
    return "har" if _is_har(head, lines[0]) else _by_lines(lines)


def _head(path: Path) -> bytes:
    """The first decompressed bytes; of a damaged file, those before the damage."""
    pieces: list[bytes] = []
    size = lines = 0
    with open_stream(path) as stream, contextlib.suppress(*READ_ERRORS):
        # `read1`, because `read` would drop the data that was decompressed before an error.
        while (size < _HEAD or (lines < _LEAST_LINES and size < _MOST)) and (
            piece := cast("Any", stream).read1(_HEAD)
        ):
            pieces.append(piece)
            size += len(piece)
            lines += piece.count(b"\n")
    return b"".join(pieces)


def _is_har(head: bytes, first: bytes) -> bool:
    """Whether a file is one JSON object with a member `log`, not JSON Lines that mention logs."""
    if _LOG.match(head):
        return True
    try:
        return len(_TOP.decode(first).log) > 0
    except (msgspec.DecodeError, RecursionError, ValueError):  # the object spans several lines
        return head.lstrip()[:1] == b"{" and b'"entries"' in head and b'"log"' in head


def _by_lines(lines: Iterable[bytes]) -> str | None:
    """The format that matches most of the lines; of equals, the one that was matched first."""
    votes: dict[str, int] = {}
    filled = 0
    for line in lines:
        filled += bool(line.strip())
        for name, looks in _LOOKS:
            if looks(line):
                votes[name] = votes.get(name, 0) + 1
                break
    found = max(votes, key=lambda name: votes[name]) if votes else None
    return None if found in _MOST_LINES and 2 * votes[found] < filled else found


def _is_hawk(path: Path) -> bool:
    from mcptally.importers.formats.mcphawk import is_database  # noqa: PLC0415  (few files need it)

    return is_database(path)
