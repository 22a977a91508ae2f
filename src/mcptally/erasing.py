"""Transcripts without what is to be forgotten: each written anew beside itself, then in its place.

A `gap` stands where something was, and never says what.
"""

import base64
import contextlib
import dataclasses
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from mcptally.archive import text_lines
from mcptally.check import is_held
from mcptally.errors import UnreadableError
from mcptally.frame import EVENTS
from mcptally.ids import digest
from mcptally.redact import written_like

WHY: Final = "forgotten on request"
"""The reason that a `gap` in the place of something forgotten gives."""

ALOUD: Final = ("stderr", "raw")
"""Events of a recording that no call can be told of."""


@dataclasses.dataclass(slots=True)
class Target:
    """What is to be forgotten of transcripts."""

    whole: set[str] = dataclasses.field(default_factory=set)
    """Recordings."""
    members: dict[str, dict[int, set[int]]] = dataclasses.field(default_factory=dict)
    """Of other recordings, messages: `seq`, and of a batch the `index`."""
    aloud: dict[str, int] = dataclasses.field(default_factory=dict)
    """Recordings of which nothing is left from a `seq` on that no call can be told of."""
    tool: str | None = None
    """Whose definition is taken out of listings."""
    listing: set[str] = dataclasses.field(default_factory=set)
    """Recordings in which it may be listed."""

    @property
    def recordings(self) -> set[str]:
        """All that anything is taken out of."""
        return {*self.whole, *self.members, *self.aloud, *self.listing}


_Fields = dict[str, msgspec.Raw]
_FIELDS: Final = msgspec.json.Decoder(_Fields)


class _Envelope(msgspec.Struct):
    event: str
    recording: str
    seq: int = 0
    ts_ns: int = 0


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_encode: Final = msgspec.json.encode


class Erased:
    """One transcript without what is forgotten; written in its place if `write`.

    Before it takes the place, `note` is called with its SHA-256 and the number of lines.
    """

    def __init__(
        self,
        path: Path,
        target: Target,
        *,
        write: bool,
        note: Callable[[str, int], None] = lambda *_: None,
    ) -> None:
        self.target = target
        self.events = 0
        """Lines that were dropped, replaced or shortened."""
        self.first: dict[str, _Envelope] = {}
        self.lost: Counter[str] = Counter()
        if not any(self._is_about(line) for _, line in text_lines(path)):
            return
        if write:
            self._rewrite(path, note)
        else:
            self.events = sum(1 for _, line in text_lines(path) if self._line(line) is not line)

    def _is_about(self, line: bytes) -> bool:
        try:
            return _ENVELOPE.decode(line).recording in self.target.recordings
        except (msgspec.DecodeError, RecursionError):
            return False

    def _rewrite(self, path: Path, note: Callable[[str, int], None]) -> None:
        if is_held(path):
            raise UnreadableError(f"{path}: is being written; stop its recorder first")
        part = path.with_name(f"{path.name}.part")
        part.unlink(missing_ok=True)
        try:
            with written_like(path, part) as write:
                for _, line in text_lines(path):
                    left = self._line(line)
                    self.events += left is not line
                    write(left)
                for name, first in sorted(self.first.items()):
                    stand_in = f"forgotten-{digest(name)}"
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

    def _line(self, line: bytes) -> bytes:
        """A line as it stays: as it was, shortened, as a gap, or not at all."""
        try:
            head = _ENVELOPE.decode(line)
        except (msgspec.DecodeError, RecursionError):
            head = None
        if head is None or head.event not in EVENTS:
            return b""  # nobody can tell what it is about: it may be the rest of a torn one
        if head.recording in self.target.whole:
            self.first.setdefault(head.recording, head)
            self.lost[head.recording] += 1
            return b""
        return self._left(head, line)

    def _left(self, head: _Envelope, line: bytes) -> bytes:
        since = self.target.aloud.get(head.recording)
        if head.event in ALOUD and since is not None and head.seq > since:
            return _gap(head.recording, head.seq, head.ts_ns, 1)
        indices = self.target.members.get(head.recording, {}).get(head.seq)
        named = head.recording in self.target.listing and _names(head, line, self.target.tool)
        if named or (head.event == "raw" and indices is not None):
            return _gap(head.recording, head.seq, head.ts_ns, 1)
        if head.event != "message" or head.recording not in self.target.recordings:
            return line
        fields = _FIELDS.decode(line)
        message = bytes(fields.get("msg", msgspec.Raw(b"null")))
        members = [message] if message[:1] != b"[" else _array(message)
        kept = [each for n, each in enumerate(members) if n not in (indices or ())]
        if not kept and members:
            return _gap(head.recording, head.seq, head.ts_ns, 1)
        if head.recording in self.target.listing:
            kept = [_unlisted(each, self.target.tool) for each in kept]
        if kept == members:
            return line
        text = kept[0] if message[:1] != b"[" else b"[" + b",".join(kept) + b"]"
        fields |= {"msg": msgspec.Raw(text), "forgotten": msgspec.Raw(b"true")}
        return _encode(fields) + b"\n"


def _names(head: _Envelope, line: bytes, tool: str | None) -> bool:
    """Whether a frame that nobody took apart may name the tool, or an HTTP head does."""
    if tool is None or head.event not in {"raw", "http"}:
        return False
    fields = _FIELDS.decode(line)
    if head.event == "http":
        headers = _value(fields, "headers")
        name = headers.get("mcp-name") if isinstance(headers, dict) else None
        return name in (tool, f"=?base64?{base64.b64encode(tool.encode()).decode()}?=")
    if _value(fields, "truncated"):
        return True  # it may stand in the part that is not there
    text = str(_value(fields, "text") or "")
    with contextlib.suppress(ValueError):
        text += base64.b64decode(str(_value(fields, "b64") or "")).decode("utf-8", "replace")
    return tool in text or tool in _unescaped(text)


def _value(fields: _Fields, name: str) -> Any:
    try:
        return msgspec.json.decode(fields[name])
    except (KeyError, msgspec.DecodeError, RecursionError):
        return None


def _unescaped(text: str) -> str:
    """The text with what JSON's escapes in it stand for, wherever they are."""
    plain = re.sub(
        r"\\u([0-9a-fA-F]{4})|\\(.)",
        lambda found: chr(int(found[1], 16)) if found[1] else found[2],
        text,
    )
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _array(text: bytes) -> list[bytes]:
    return [bytes(each) for each in msgspec.json.decode(text, type=list[msgspec.Raw])]


def _unlisted(message: bytes, tool: str | None) -> bytes:
    """A reply to tools/list without the definition of a tool; other messages as they are."""
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
    try:
        return msgspec.json.decode(_FIELDS.decode(definition)["name"], type=str)
    except (msgspec.DecodeError, KeyError, RecursionError):
        return None


def _gap(recording: str, seq: int, ts_ns: int, lost: int) -> bytes:
    event = {"v": 1, "event": "gap", "recording": recording, "seq": seq, "ts_ns": ts_ns}
    return _encode(event | {"lost": lost, "why": WHY}) + b"\n"
