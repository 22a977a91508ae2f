"""What is written of an event: one line, its text redacted by the policy, its frame spliced in."""

from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from mcptally.redaction.policy import Policy
from mcptally.transcript.format import FORMAT_VERSION, Dir
from mcptally.wire.framing import Piece, TooLarge
from mcptally.wire.strict_json import strict_json_error
from mcptally.wire.truncated import fields_of_truncated

_encode: Final = msgspec.json.Encoder().encode


class Around(NamedTuple):
    """What the frames of one call of `Recording.frame` or `frames` have in common."""

    way: Dir
    scope: str | None
    wire_bytes: int | None
    fields: dict[str, Any]
    template: bytes
    json_scope: bytes
    json_fields: bytes


class Lines:
    """Makes the lines of one recording; nothing of it is ever written in clear by a failure."""

    def __init__(self, recording: str, policy: Policy) -> None:
        self._recording = recording
        self._policy = policy
        self._templates = {
            way: (
                b'{"v":%d,"event":"message","recording":"%b","seq":%%d,"ts_ns":%%d,"dir":"%b",'
                b'"scope":%%b,"bytes":%%d,%%b"msg":%%b}\n'
            )
            % (FORMAT_VERSION, recording.encode(), way.encode())
            for way in ("c2s", "s2c")
        }

    def event(self, event: str, fields: Mapping[str, Any], *, seq: int, ts_ns: int) -> bytes:
        """Any event but a `message`."""
        begin = {"v": FORMAT_VERSION, "event": event, "recording": self._recording}
        whole = {**begin, "seq": seq, "ts_ns": ts_ns, **fields}
        try:
            return _encode(whole) + b"\n"
        except UnicodeEncodeError:
            return _encode(_in_utf8(whole)) + b"\n"

    def around(
        self, way: Dir, *, scope: str | None, wire_bytes: int | None, fields: dict[str, Any]
    ) -> Around:
        """What `frame` needs to know beside the frame, made once for all frames of a call."""
        json_scope = b"null" if scope is None else _encode(scope)
        json_fields = _encode(fields)[1:-1] + b"," if fields else b""
        return Around(way, scope, wire_bytes, fields, self._templates[way], json_scope, json_fields)

    def frame(self, piece: Piece, around: Around, *, seq: int, ts_ns: int) -> tuple[bytes, bool]:
        """The line of one frame, and whether it is a `message`.

        It is a `raw` when it is not strict JSON, is over the cap, or came with a `why`.
        """
        own = piece.size if isinstance(piece, TooLarge) else len(piece)
        size = own if around.wire_bytes is None else around.wire_bytes
        if isinstance(piece, TooLarge):
            why, found = "too_large", self._oversize(piece)
        elif "why" in around.fields:
            # No client takes it for a message, even if it happens to be JSON.
            why, found = around.fields["why"], self.text(piece)
        elif not_strict := strict_json_error(piece):
            torn = not_strict == "not_json" and "unterminated" in around.fields
            why, found = "torn" if torn else not_strict, self.text(piece)
        else:
            try:
                copy, redacted = self._policy.json(piece)
            except Exception:  # noqa: BLE001 - a policy may neither stop traffic nor leak it
                why, found = "redaction_failed", {"text": ""}
            else:
                extra = around.json_fields
                if redacted:
                    extra += b'"redacted":%d,' % redacted
                if b"\r" in copy or b"\n" in copy:
                    # In strict JSON a line break can only stand between tokens.
                    copy = copy.replace(b"\r", b" ").replace(b"\n", b" ")
                    extra += b'"reflowed":true,'
                line = around.template % (seq, ts_ns, around.json_scope, size, extra, copy)
                return line, True
        event = {"dir": around.way, "scope": around.scope, "bytes": size, "why": why}
        return self.event("raw", {**event, **around.fields, **found}, seq=seq, ts_ns=ts_ns), False

    def text(self, data: bytes) -> dict[str, Any]:
        """Bytes of any kind as the fields `text` or `b64`, and `redacted` where something was."""
        try:
            data, redacted = self._policy.text(data)
        except Exception:  # noqa: BLE001 - a policy may neither stop traffic nor leak it
            return {"text": "", "withheld": "redaction_failed"}
        extra: dict[str, Any] = {"redacted": redacted} if redacted else {}
        try:
            return {**extra, "text": data.decode()}
        except UnicodeDecodeError:
            return {**extra, "b64": b2a_base64(data, newline=False).decode()}

    def url(self, url: str) -> str:
        """A URL or a path, redacted."""
        try:
            return _utf8(self._policy.url(url)[0])
        except Exception:  # noqa: BLE001 - a policy may neither stop traffic nor leak it
            return ""

    def label(self, server: str) -> str:
        """What a server is called, redacted: the label may have been made of its command."""
        return self._words(_utf8(server))

    def command(self, command: Sequence[str]) -> list[str]:
        """A command line, redacted."""
        try:
            return [_utf8(word) for word in self._policy.argv(command)[0]]
        except Exception:  # noqa: BLE001 - a policy may neither stop traffic nor leak it
            return []

    def _oversize(self, piece: TooLarge) -> dict[str, Any]:
        found = {
            key: self._words(value) if isinstance(value, str) else value
            for key, value in fields_of_truncated(piece).items()
        }
        # A hash of the whole would let a short secret be guessed.
        whole = {"sha256": piece.sha256} if self._policy.name == "none" else {}
        return {"truncated": True, **whole, **found, **self.text(piece.head)}

    def _words(self, text: str) -> str:
        return str(self.text(text.encode(errors="replace")).get("text", ""))


def _utf8(text: str) -> str:
    """Words of the system that are not UTF-8 come as surrogates, which no JSON can hold."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _in_utf8(value: Any) -> Any:
    """A value with `_utf8` of every text in it."""
    if isinstance(value, str):
        return _utf8(value)
    if isinstance(value, list):
        return [_in_utf8(item) for item in value]
    if isinstance(value, dict):
        return {key: _in_utf8(item) for key, item in value.items()}
    return value
