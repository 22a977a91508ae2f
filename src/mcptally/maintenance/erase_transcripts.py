"""Removes data from transcripts: writes a new file in the same folder, then replaces the original.

A `gap` event marks each place where something was removed, and does not say what it was.
"""

import base64
import contextlib
import dataclasses
import hashlib
import json
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from mcptally.errors import UnreadableError
from mcptally.transcript.check import is_locked
from mcptally.transcript.events import (
    AnyEvent,
    CloseEvent,
    HttpEvent,
    MessageEvent,
    RawFrame,
    StderrEvent,
)
from mcptally.transcript.files import numbered_lines
from mcptally.transcript.line_reasons import LineReasons
from mcptally.transcript.parse import parse_event, parse_members
from mcptally.transcript.redact import compressed_like
from mcptally.wire.json_text import ANY, decode_or_none

WHY: Final = "forgotten on request"
"""The reason in the `gap` events that replace removed lines."""

CALLLESS: Final = (StderrEvent, RawFrame)
"""Kinds of events that cannot be assigned to a call."""


@dataclasses.dataclass(slots=True)
class EraseTarget:
    """The data to remove from transcripts."""

    whole: set[str] = dataclasses.field(default_factory=set)
    """Recordings that are removed as a whole."""
    members: dict[str, dict[int, set[int]]] = dataclasses.field(default_factory=dict)
    """Messages in other recordings: recording → `seq` → `index` in the batch (0 otherwise)."""
    callless_after: dict[str, int] = dataclasses.field(default_factory=dict)
    """Recording → `seq` after which events that cannot be assigned to a call are removed."""
    tool: str | None = None
    """The tool whose definition is removed from listings."""
    listing: set[str] = dataclasses.field(default_factory=set)
    """Recordings that may list it."""
    key: bytes = dataclasses.field(default_factory=lambda: secrets.token_bytes(16))
    """Key of the hashes that replace the ids of removed recordings; never stored."""

    @property
    def recordings(self) -> set[str]:
        """All recordings from which anything is removed."""
        return {*self.whole, *self.members, *self.callless_after, *self.listing}


_Fields = dict[str, msgspec.Raw]
_FIELDS: Final = msgspec.json.Decoder(_Fields)
_STRING: Final = msgspec.json.Decoder(str)
_encode: Final = msgspec.json.encode


class TranscriptEraser:
    """Removes a target from a transcript; with `write=False` it only counts the lines to change.

    Before the transcript is replaced, `note` is called with the SHA-256 of the new one and the
    number of changed lines.
    """

    def __init__(
        self,
        path: Path,
        target: EraseTarget,
        *,
        write: bool,
        note: Callable[[str, int], None] = lambda *_: None,
    ) -> None:
        self.path = path
        self.target = target
        self.events = 0
        """Number of lines that are removed, replaced or shortened."""
        self.first_events: dict[str, AnyEvent] = {}
        """First event of each recording that is removed as a whole."""
        self.lost: Counter[str] = Counter()
        """Number of its events."""
        self.not_events = LineReasons()
        """The lines that are removed because they are not events."""
        self.damage: list[str] = []
        """Unreadable parts of the file, which are removed."""
        if not any(self._is_about(line) for _, line in numbered_lines(path)):
            return
        if write:
            self._rewrite(path, note)
        else:
            for number, line in numbered_lines(path, self.damage):
                self.events += self._line(number, line) is not line

    @property
    def taken_out(self) -> list[str]:
        """Places and reasons of lines that are removed because they cannot be read."""
        return [*self.damage, *self.not_events.messages(self.path)]

    def _is_about(self, line: bytes) -> bool:
        event = parse_event(line)
        return (
            event is not None
            and not isinstance(event, tuple)
            and event.recording in self.target.recordings
        )

    def _rewrite(self, path: Path, note: Callable[[str, int], None]) -> None:
        if is_locked(path):
            raise UnreadableError(f"{path}: is being written; stop its recorder first")
        part = path.with_name(f"{path.name}.part")
        part.unlink(missing_ok=True)
        try:
            with compressed_like(path, part) as write:
                for number, line in numbered_lines(path, self.damage):
                    left = self._line(number, line)
                    self.events += left is not line
                    write(left)
                for name, first in sorted(self.first_events.items()):
                    mark = hashlib.blake2b(name.encode(), digest_size=8, key=self.target.key)
                    stand_in = f"forgotten-{mark.hexdigest()}"
                    write(_gap(stand_in, first.seq, first.ts_ns, self.lost[name]))
            if self.events:
                part.chmod(path.stat().st_mode)
                with part.open("rb") as file:
                    os.fsync(file.fileno())
                    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                note(sha256, self.events)
                part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def _line(self, number: int, line: bytes) -> bytes:
        """The line to write in place of a line: the same, a shorter one, a gap, or none (`b""`)."""
        event = parse_event(line)
        if event is None:
            return line
        if isinstance(event, tuple):
            # It may be part of a removed event that was torn.
            self.not_events.add(event[1], number)
            return b""
        if event.recording in self.target.whole:
            self.first_events.setdefault(event.recording, event)
            self.lost[event.recording] += 1
            return b""
        members = parse_members(line)
        if isinstance(members, tuple) or len(dict(members)) < len(members):
            # Of two members with one name, readers see the last; the first may hold the target.
            return _gap(event.recording, event.seq, event.ts_ns, 1)
        return self._without_target(event, line)

    def _without_target(self, event: AnyEvent, line: bytes) -> bytes:
        """The line to write in place of an event, if its recording is not removed as a whole."""
        target, gap = self.target, _gap(event.recording, event.seq, event.ts_ns, 1)
        since = target.callless_after.get(event.recording)
        if isinstance(event, CALLLESS) and since is not None and event.seq > since:
            return gap
        indices = target.members.get(event.recording, {}).get(event.seq)
        may_list = event.recording in target.listing and target.tool is not None
        if isinstance(event, RawFrame) and indices is not None:
            return gap
        if may_list and _may_name_tool(event, line, target.tool or ""):
            return (
                _close_without_tool(line, target.tool or "")
                if isinstance(event, CloseEvent)
                else gap
            )
        if not isinstance(event, MessageEvent) or event.recording not in target.recordings:
            return line
        fields = _FIELDS.decode(line)
        message = bytes(fields["msg"])
        members = [message] if message[:1] != b"[" else _array(message)
        kept = [each for n, each in enumerate(members) if n not in (indices or ())]
        if may_list:
            kept = [each for each in kept if not _is_notification_about(each, target.tool or "")]
        if not kept and members:
            return gap
        if may_list:
            kept = [_without_definition(each, target.tool) for each in kept]
        if kept == members:
            return line
        text = kept[0] if message[:1] != b"[" else b"[" + b",".join(kept) + b"]"
        fields |= {"msg": msgspec.Raw(text), "forgotten": msgspec.Raw(b"true")}
        return _encode(fields) + b"\n"


def messages_naming(
    path: Path, tool: str, places: Collection[tuple[str, int]]
) -> Iterator[tuple[str, int, int]]:
    """The messages at `places` (recording, `seq`) that name a tool, with the index in the batch."""
    for _, line in numbered_lines(path):
        event = parse_event(line)
        if not isinstance(event, MessageEvent) or (event.recording, event.seq) not in places:
            continue
        message = bytes(_FIELDS.decode(line)["msg"])
        members = [message] if message[:1] != b"[" else _array(message)
        for index, each in enumerate(members):
            if _is_in(tool, each.decode()):
                yield event.recording, event.seq, index


def _is_in(tool: str, text: str) -> bool:
    """Whether a text contains the name of a tool, plain or with JSON escapes."""
    return tool in text or ("\\" in text and tool in _unescaped(text))


def _is_notification_about(message: bytes, tool: str) -> bool:
    """Whether a notification names the tool.

    Also true for any message that names it and has a duplicate member: readers see only one of the
    two.
    """
    if not _is_in(tool, message.decode()):
        return False
    has_duplicates = False

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal has_duplicates
        has_duplicates = has_duplicates or len(dict(pairs)) < len(pairs)
        return dict(pairs)

    try:
        value = json.loads(message, object_pairs_hook=members, parse_int=str)
    except (ValueError, RecursionError):
        return True
    return has_duplicates or (isinstance(value, dict) and "method" in value and "id" not in value)


def _may_name_tool(event: AnyEvent, line: bytes, tool: str) -> bool:
    """Whether an event without a call may name the tool, or an HTTP header names it."""
    fields = _FIELDS.decode(line)
    if isinstance(event, HttpEvent):
        headers = _value(fields, "headers")
        name = headers.get("mcp-name") if isinstance(headers, dict) else None
        return name in (tool, f"=?base64?{base64.b64encode(tool.encode()).decode()}?=")
    if isinstance(event, CloseEvent):
        return _is_in(tool, line.decode())
    if not isinstance(event, CALLLESS):
        return False
    if _value(fields, "truncated"):
        return True  # the missing part may name it
    text = str(_value(fields, "text") or "")
    with contextlib.suppress(ValueError):
        text += base64.b64decode(str(_value(fields, "b64") or "")).decode("utf-8", "replace")
    return _is_in(tool, text)


def _close_without_tool(line: bytes, tool: str) -> bytes:
    """A `close` event without the members that name the tool; the event itself stays."""
    fields = _FIELDS.decode(line)
    kept = {
        name: value
        for name, value in fields.items()
        if name in _ENVELOPE or not _is_in(tool, name + bytes(value).decode())
    }
    if len(kept) == len(fields):
        return line
    return _encode({"reason": WHY} | kept | {"forgotten": True}) + b"\n"


_ENVELOPE: Final = frozenset({"v", "event", "recording", "seq", "ts_ns"})


def _value(fields: _Fields, name: str) -> Any:
    return decode_or_none(ANY, fields.get(name, b"null"))


def _unescaped(text: str) -> str:
    """The text with JSON escapes decoded, also outside of strings."""
    plain = re.sub(
        r"\\u([0-9a-fA-F]{4})|\\(.)",
        lambda found: chr(int(found[1], 16)) if found[1] else found[2],
        text,
    )
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _array(text: bytes) -> list[bytes]:
    return [bytes(each) for each in msgspec.json.decode(text, type=list[msgspec.Raw])]


def _without_definition(message: bytes, tool: str | None) -> bytes:
    """A reply to tools/list without the definition of a tool; other messages unchanged."""
    if b'"tools"' not in message and b"\\u" not in message:
        return message
    try:
        fields = _FIELDS.decode(message)
        result = _FIELDS.decode(fields["result"])
        tools = msgspec.json.decode(result["tools"], type=list[msgspec.Raw])
        kept = [each for each in tools if _name(each) != tool]
    except (msgspec.DecodeError, KeyError, RecursionError):
        return message
    if len(kept) == len(tools):
        return message
    result["tools"] = msgspec.Raw(_encode(kept))
    fields["result"] = msgspec.Raw(_encode(result))
    return _encode(fields)


def _name(definition: msgspec.Raw) -> str | None:
    fields = decode_or_none(_FIELDS, definition) or {}
    return decode_or_none(_STRING, fields.get("name", b"null"))


def _gap(recording: str, seq: int, ts_ns: int, lost: int) -> bytes:
    event = {"v": 1, "event": "gap", "recording": recording, "seq": seq, "ts_ns": ts_ns}
    return _encode(event | {"lost": lost, "why": WHY}) + b"\n"
