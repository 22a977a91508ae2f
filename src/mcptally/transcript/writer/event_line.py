"""Encodes events as transcript lines: redacts text, and inserts frames byte for byte."""

from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from mcptally.redaction.policy import LineRedactor, Policy
from mcptally.transcript.format import FORMAT_VERSION, Dir
from mcptally.transcript.writer.utf8 import all_to_utf8, to_utf8
from mcptally.wire.framing import Piece, TruncatedFrame
from mcptally.wire.strict_json import strict_json_error
from mcptally.wire.truncated import fields_of_truncated

_encode: Final = msgspec.json.Encoder().encode

UNKNOWN_SIZE: Final = -1
"""Value of `wire_bytes` for frames whose length on the wire is unknown."""


def json_bytes(value: Any) -> bytes:
    """Encode the value as JSON; undecodable bytes (surrogates, invalid in JSON) are replaced."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(all_to_utf8(value))


def http_event(fields: Mapping[str, Any]) -> bytes:
    """Return the fields of an `http` event as JSON without braces.

    The caller redacts the path and the headers, and hashes session ids.
    """
    return json_bytes(fields)[1:-1]


class FrameContext(NamedTuple):
    """The values shared by all frames in one call to `Recording.frames`."""

    direction: Dir
    scope: str | None
    wire_bytes: int | None
    fields: dict[str, Any]
    template: bytes
    json_scope: bytes
    json_fields: bytes


class EventLineEncoder:
    """Encodes the events of one recording as lines; a text whose redaction fails is left out.

    `is_clean` says whether the policy is known to leave a frame unchanged.
    """

    def __init__(
        self, recording: str, policy: Policy, *, is_clean: Callable[[bytes], bool]
    ) -> None:
        self._recording = recording
        self._policy = policy
        self._stderr = LineRedactor(policy)
        self._is_clean = is_clean
        self._templates = {
            direction: (
                b'{"v":%d,"event":"message","recording":"%b","seq":%%d,"ts_ns":%%d,"dir":"%b",'
                b'"scope":%%b,"bytes":%%b,%%b"msg":%%b}\n'
            )
            % (FORMAT_VERSION, recording.encode(), direction.encode())
            for direction in ("c2s", "s2c")
        }
        self._http_template = (
            b'{"v":%d,"event":"http","recording":"%b","seq":%%d,"ts_ns":%%d,%%b}\n'
        ) % (FORMAT_VERSION, recording.encode())

    def encode_event(self, event: str, fields: Mapping[str, Any], *, seq: int, ts_ns: int) -> bytes:
        """Return the line of an event of any kind except `message`."""
        common_fields = {"v": FORMAT_VERSION, "event": event, "recording": self._recording}
        complete = {**common_fields, "seq": seq, "ts_ns": ts_ns, **fields}
        return json_bytes(complete) + b"\n"

    def encode_http(self, fields: bytes, *, seq: int, ts_ns: int) -> bytes:
        """Return the line of an `http` event, whose fields come from `http_event`."""
        return self._http_template % (seq, ts_ns, fields)

    def frame_context(
        self, direction: Dir, scope: str | None, wire_bytes: int | None, fields: dict[str, Any]
    ) -> FrameContext:
        """Return the context for `encode_frame`, computed once for all frames in a call."""
        json_fields = _encode(fields)[1:-1] + b"," if fields else b""
        template = self._templates[direction]
        return FrameContext(
            direction, scope, wire_bytes, fields, template, _encode(scope), json_fields
        )

    def encode_frame(
        self, piece: Piece, context: FrameContext, *, seq: int, ts_ns: int
    ) -> tuple[bytes, bool]:
        """Return the line of one frame, and whether it is a `message`.

        The event is `raw` if the frame is not strict JSON, exceeds the size limit, or has a `why`.
        """
        received_size = piece.size if isinstance(piece, TruncatedFrame) else len(piece)
        size = received_size if context.wire_bytes is None else context.wire_bytes
        if isinstance(piece, TruncatedFrame):
            why, found = "too_large", self._truncated_fields(piece)
        elif "why" in context.fields:
            # Clients do not read this as a message, even if it is JSON.
            why, found = context.fields["why"], self.text_fields(piece)
        elif not_strict := strict_json_error(piece):
            torn = not_strict == "not_json" and "unterminated" in context.fields
            why, found = "torn" if torn else not_strict, self.text_fields(piece)
        else:
            try:
                copy, redacted = (piece, 0) if self._is_clean(piece) else self._policy.json(piece)
            except Exception:  # noqa: BLE001 - a failing policy must not stop traffic or leak data
                why, found = "redaction_failed", {"text": ""}
            else:
                json_size = b"null" if size == UNKNOWN_SIZE else b"%d" % size
                extra = context.json_fields
                if redacted:
                    extra += b'"redacted":%d,' % redacted
                if b"\r" in copy or b"\n" in copy:
                    # In strict JSON, line breaks occur only between tokens.
                    copy = copy.replace(b"\r", b" ").replace(b"\n", b" ")
                    extra += b'"reflowed":true,'
                line = context.template % (seq, ts_ns, context.json_scope, json_size, extra, copy)
                return line, True
        event: dict[str, Any] = {
            "dir": context.direction,
            "scope": context.scope,
            "bytes": None if size == UNKNOWN_SIZE else size,
            "why": why,
        }
        event |= {**context.fields, **found}
        return self.encode_event("raw", event, seq=seq, ts_ns=ts_ns), False

    def stderr_fields(self, line: bytes) -> dict[str, Any]:
        """Return the fields of the next stderr line; a private key may span several lines."""
        return self.text_fields(line, self._stderr.text)

    def text_fields(
        self, data: bytes, redact: Callable[[bytes], tuple[bytes, int]] | None = None
    ) -> dict[str, Any]:
        """Return bytes as field `text` (UTF-8) or `b64`, with `redacted` if any were redacted."""
        try:
            data, redacted = (redact or self._policy.text)(data)
        except Exception:  # noqa: BLE001 - a failing policy must not stop traffic or leak data
            return {"text": "", "withheld": "redaction_failed"}
        extra: dict[str, Any] = {"redacted": redacted} if redacted else {}
        try:
            return {**extra, "text": data.decode()}
        except UnicodeDecodeError:
            return {**extra, "b64": b2a_base64(data, newline=False).decode()}

    def redact_url(self, url: str) -> str:
        """Return the URL or path after redaction; empty if redaction failed."""
        try:
            return to_utf8(self._policy.url(url)[0])
        except Exception:  # noqa: BLE001 - a failing policy must not stop traffic or leak data
            return ""

    def redact_label(self, server: str) -> str:
        """Return the label after redaction: labels derived from commands may contain secrets."""
        return self.redact_text(to_utf8(server))

    def redact_command(self, command: Sequence[str]) -> list[str]:
        """Return the command line after redaction; empty if redaction failed."""
        try:
            return [to_utf8(word) for word in self._policy.argv(command)[0]]
        except Exception:  # noqa: BLE001 - a failing policy must not stop traffic or leak data
            return []

    def _truncated_fields(self, piece: TruncatedFrame) -> dict[str, Any]:
        found = {
            key: self.redact_text(value) if isinstance(value, str) else value
            for key, value in fields_of_truncated(piece).items()
        }
        # Omit the hash when redacting: a short secret could be guessed from it.
        complete = {"sha256": piece.sha256} if self._policy.name == "none" else {}
        return {"truncated": True, **complete, **found, **self.text_fields(piece.head)}

    def redact_text(self, text: str) -> str:
        """Return the text after redaction; empty if redaction failed."""
        return str(self.text_fields(text.encode(errors="replace")).get("text", ""))
