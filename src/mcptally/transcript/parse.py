"""Parses transcript lines into events, or into the broken rule and a message if they are invalid.

`score` and `check` both use this module, so they never disagree about a line.
"""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from mcptally.transcript.events import (
    EVENT_DECODER,
    MEMBERS_DECODER,
    MSG_DECODER,
    AnyEvent,
    MessageEvent,
)
from mcptally.transcript.format import FORMAT_VERSION, WITHHELD
from mcptally.wire.nesting import MAX_DEPTH, is_too_deep

Rejection = tuple[str, str]
"""Id of the rule that a line breaks, and a message."""

TORN_TAIL_MESSAGE: Final = "the last line is torn: the recorder was stopped, or is still writing"

MAX_NOISE_LINES: Final = 1_000_000
"""Number of lines without an event after which the rest of a file is not read.

A decompression bomb of a few kB may contain hundreds of millions of lines, each of which takes
microseconds.
"""

NOISE_MESSAGE: Final = (
    f"more than {MAX_NOISE_LINES:,} lines before this one are not events: the rest was not read"
)

LINE_DEPTH: Final = MAX_DEPTH + 1
"""Maximum nesting of a line: the maximum nesting of a message, plus one level for the event."""

_MAX_QUOTED: Final = 200
"""Maximum characters kept from a parser's message, because the message may quote the line."""


def parse_lines(data: bytes, ends: Sequence[int]) -> list[AnyEvent] | None:
    """Return the events on complete lines that end at `ends`; None if any line is not an event."""
    too_deep = any(
        end - start > 2 * LINE_DEPTH and is_too_deep(data[start:end], LINE_DEPTH)
        for start, end in itertools.pairwise((0, *ends))
    )
    return None if too_deep or not is_utf8(data) else decode_events(data, len(ends))


def decode_events(data: bytes | memoryview, lines: int) -> list[AnyEvent] | None:
    """Decode UTF-8 lines that are not nested too deeply; return None if a line is not an event.

    Args:
        data: the lines.
        lines: the number of lines.
    """
    try:
        events: list[AnyEvent] = EVENT_DECODER.decode_lines(data)
    except msgspec.DecodeError:
        return None
    return events if len(events) == lines else None


def parse_event(line: bytes) -> AnyEvent | Rejection | None:
    """Return the event on a line (without newline), or the broken rule; None for a blank line."""
    if not line.strip():
        return None
    if not is_utf8(line):
        return "transcript.not_utf8", "the line is not UTF-8"
    if is_too_deep(line, LINE_DEPTH):
        return "transcript.too_deep", f"JSON nested deeper than {MAX_DEPTH} levels"
    try:
        return EVENT_DECODER.decode(line)
    except msgspec.ValidationError as error:
        fault = str(error)[:_MAX_QUOTED]
    except msgspec.DecodeError as error:
        return "transcript.not_json", f"not JSON: {error}".replace("JSON is malformed: ", "")[
            :_MAX_QUOTED
        ]
    try:
        members = MEMBERS_DECODER.decode(line)
        version = bytes(members.get("v", b""))
        if version.isdigit() and version != b"%d" % FORMAT_VERSION:
            return "transcript.unknown_format", (
                f"transcript format {version[:20].decode()} is not supported; this version reads "
                f"{FORMAT_VERSION}"
            )
        event_name = bytes(members.get("event", b""))
        if not event_name and WITHHELD in members:
            return "transcript.withheld", _withheld_message(members)
        if event_name == b'"message"' and "msg" in members:
            raw = members.pop("msg")
            members["msg"] = Raw(b"{}")
            event = EVENT_DECODER.decode(msgspec.json.encode(members))
            if isinstance(event, MessageEvent):
                event.msg = MSG_DECODER.one(raw)
                return event
    except msgspec.DecodeError:
        pass
    return "transcript.not_an_event", f"not an event of transcript format 1: {fault}"


def _withheld_message(members: dict[str, Raw]) -> str:
    """Return a message that says why `redact` withheld a line."""
    try:
        why = f": {msgspec.json.decode(members[WITHHELD], type=str)[:_MAX_QUOTED]}"
    except (KeyError, msgspec.DecodeError):
        why = ""
    return f"`mcptally redact` withheld this line because it could not search it for secrets{why}"


Member = tuple[str, bytes]
"""The name of a member of a JSON object, and the JSON text of its value."""


def parse_members(line: bytes) -> list[Member] | Rejection:
    """Return the members of the JSON object on a line, in order, including repeated names.

    A dict would keep only the last of several members with the same name.
    """
    if not is_utf8(line):
        return "transcript.not_utf8", "the line is not UTF-8"
    if is_too_deep(line, LINE_DEPTH):
        return "transcript.too_deep", f"JSON nested deeper than {MAX_DEPTH} levels"
    try:
        last = MEMBERS_DECODER.decode(line)
        members = [(name, bytes(value)) for name, value in last.items()]
        text = line.strip()
        if text in {join_members(members), join_members(members, b", ", b": ")}:
            return members
        return list(_scan_members(line.decode()))
    except msgspec.ValidationError:
        return "transcript.not_an_event", "JSON, but not an object"
    except ValueError:  # raised by msgspec or by the standard library
        return "transcript.not_json", "not JSON"


def join_members(members: list[Member], comma: bytes = b",", colon: bytes = b":") -> bytes:
    """Return the JSON text of the object with these members."""
    return b"{" + comma.join([msgspec.json.encode(k) + colon + v for k, v in members]) + b"}"


# Keep numbers as text: Python refuses to convert integers with more than 4,300 digits.
_VALUE_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, strict=False)
_BLANK: Final = re.compile(r"[ \t\r\n]*")


def _scan_members(text: str) -> Iterator[Member]:
    """Yield each member of an object that msgspec accepts, using the scanner of `json`."""

    def skip(at: int) -> int:
        blank = _BLANK.match(text, at)
        return blank.end() if blank else at

    at = skip(skip(0) + 1)
    while text[at] != "}":
        name, at = _VALUE_DECODER.raw_decode(text, at)
        begin = skip(skip(at) + 1)
        _, at = _VALUE_DECODER.raw_decode(text, begin)
        yield name, text[begin:at].encode()
        at = skip(at)
        at = skip(at + 1) if text[at] == "," else at


def is_torn(line: bytes) -> bool:
    """Return whether an invalid last line without a newline may be the start of an event."""
    return line.lstrip(b" \t\r").startswith(b"{")


def is_utf8(data: bytes) -> bool:
    """Return whether the bytes are UTF-8; msgspec does not check the values that it skips."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
