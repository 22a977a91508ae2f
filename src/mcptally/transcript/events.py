"""The shapes of transcript events and JSON-RPC messages, as msgspec structs.

Payloads stay raw JSON (`Raw`; an empty one is an absent member), what is nearly always a string is
typed as one, and a value of another type than declared counts as absent (`Shape.one`): odd traffic
is read as far as it goes.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

ABSENT: Final = Raw()
_Int = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Signed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Status = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Version = Literal[1]


class MessageEvent(Struct, tag_field="event", tag="message", gc=False):
    """A frame that is strict JSON."""

    recording: str
    seq: _Int
    ts_ns: _Int
    v: _Version
    dir: Literal["c2s", "s2c"]
    msg: "Msg | list[Raw]"
    scope: str | None = None
    bytes: _Int | None = None
    sse_id: str | None = None
    redacted: _Int | None = None


class RawFrame(Struct, tag_field="event", tag="raw", gc=False):
    """What arrived and is not strict JSON, or is over the size cap."""

    recording: str
    seq: _Int
    ts_ns: _Int
    v: _Version
    dir: Literal["c2s", "s2c"]
    why: str | None = None
    scope: str | None = None
    bytes: _Int | None = None
    text: str | None = None
    sse_id: str | None = None
    sse_event: str | None = None
    id: Raw = ABSENT
    method: str | None = None
    name: str | None = None
    is_error: bool | None = None


class StderrEvent(Struct, tag_field="event", tag="stderr", gc=False):
    """Output of the server on stderr; only that it was there."""

    recording: str
    seq: _Int
    ts_ns: _Int
    v: _Version


class Headers(Struct, gc=False, rename="kebab"):
    """The HTTP headers that say something about a conversation."""

    mcp_session_id: str | None = None
    mcp_protocol_version: str | None = None
    mcp_method: str | None = None
    mcp_name: str | None = None
    last_event_id: str | None = None


class HttpEvent(Struct, tag_field="event", tag="http", gc=False):
    """A request head, a response head, or the end of an HTTP exchange."""

    recording: str
    seq: _Int
    ts_ns: _Int
    v: _Version
    dir: Literal["c2s", "s2c"]
    phase: str
    scope: str | None = None
    method: str | None = None
    path: str | None = None
    status: _Status | None = None
    closed_by: str | None = None
    headers: Headers | None = None


class OpenEvent(Struct, tag_field="event", tag="open", gc=False):
    """A segment begins."""

    recording: str
    seq: _Int
    ts_ns: _Int
    v: _Version
    transport: str | None = None
    server: str | None = None
    command: Raw = ABSENT
    url: str | None = None
    recorder: str | None = None
    redaction: Raw = ABSENT
    source: Raw = ABSENT
    segment: _Int | None = None


class CloseEvent(Struct, tag_field="event", tag="close", gc=False):
    """The recording ended in order."""

    recording: str
    seq: _Int
    ts_ns: _Int
    v: _Version
    reason: str | None = None
    exit_code: _Signed | None = None
    signal: Raw = ABSENT
    counts: Raw = ABSENT


class GapEvent(Struct, tag_field="event", tag="gap", gc=False):
    """Events that the recorder had to drop."""

    recording: str
    seq: _Int
    ts_ns: _Int
    v: _Version
    lost: _Int | None = None
    why: str | None = None


class Msg(Struct, gc=False):
    """A JSON-RPC message, or what stands in its place; `method` decides what it asks."""

    jsonrpc: Raw = ABSENT
    id: Raw = ABSENT
    method: str | None = None
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


class RequestMeta(Struct, gc=False):
    """`params._meta`."""

    progress_token: Raw = msgspec.field(default=ABSENT, name="progressToken")
    protocol_version: str | None = msgspec.field(
        default=None, name="io.modelcontextprotocol/protocolVersion"
    )
    client_info: Raw = msgspec.field(default=ABSENT, name="io.modelcontextprotocol/clientInfo")
    capabilities: Raw = msgspec.field(
        default=ABSENT, name="io.modelcontextprotocol/clientCapabilities"
    )


class Params(Struct, gc=False, rename="camel"):
    """Members of `params` that any stage asks for, whatever the method."""

    name: str | None = None
    uri: str | None = None
    arguments: Raw = ABSENT
    request_id: Raw = ABSENT
    progress_token: Raw = ABSENT
    reason: str | None = None
    protocol_version: str | None = None
    client_info: Raw = ABSENT
    capabilities: Raw = ABSENT
    request_state: str | None = None
    input_responses: Raw = ABSENT
    progress: Raw = ABSENT
    cursor: Raw = ABSENT
    task: Raw = ABSENT
    task_id: str | None = None
    meta: RequestMeta | None = msgspec.field(default=None, name="_meta")


class Block(Struct, gc=False, rename="camel"):
    """A content block. None stands for null or any other value that is no string."""

    type: str | UnsetType | None = UNSET
    text: str | UnsetType | None = UNSET
    data: Raw = ABSENT
    mime_type: Raw = ABSENT
    uri: Raw = ABSENT
    annotations: Raw = ABSENT
    meta: Raw = msgspec.field(default=ABSENT, name="_meta")


class ResultMeta(Struct, gc=False):
    """`result._meta`."""

    server_info: Raw = msgspec.field(default=ABSENT, name="io.modelcontextprotocol/serverInfo")
    subscription: Raw = msgspec.field(default=ABSENT, name="io.modelcontextprotocol/subscriptionId")


class Result(Struct, gc=False, rename="camel"):
    """Members of `result` that any stage asks for, whatever the method."""

    content: list[Block] | UnsetType | None = UNSET
    is_error: Raw = ABSENT
    structured_content: Raw = ABSENT
    result_type: str | None = None
    request_state: str | None = None
    tools: Raw = ABSENT
    protocol_version: str | None = None
    server_info: Raw = ABSENT
    capabilities: Raw = ABSENT
    task: Raw = ABSENT
    meta: ResultMeta | UnsetType | None = msgspec.field(default=UNSET, name="_meta")


class Error(Struct, gc=False):
    """A JSON-RPC error."""

    code: _Signed | None = None
    message: str | None = None
    data: Raw = ABSENT


EVENTS: Final[dict[type[Struct], str]] = {
    MessageEvent: "messages",
    RawFrame: "raws",
    StderrEvent: "stderr",
    HttpEvent: "http",
    OpenEvent: "opens",
    CloseEvent: "closes",
    GapEvent: "gaps",
}
"""Every event and the frame its rows go to."""

AnyEvent = MessageEvent | RawFrame | StderrEvent | HttpEvent | OpenEvent | CloseEvent | GapEvent

OTHER_CONTENT: Final = Block(type=None)
"""Stands alone in `content` that is no array."""

T = TypeVar("T", bound=Struct)


class LenientDecoder(Generic[T]):
    """Decodes many JSON texts of one shape at once; the odd ones alone, field by field."""

    def __init__(self, cls: type[T]) -> None:
        hints = get_type_hints(cls, include_extras=True)
        self.cls = cls
        self.decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(cls)
        self.fields = {
            field.encode_name: (field.name, msgspec.json.Decoder(hints[field.name]))
            for field in msgspec.structs.fields(cls)
        }

    def many(self, texts: Sequence[Raw]) -> tuple[list[T], list[int]]:
        """One struct a text, in order, and the places of those that are not of this shape."""
        out: list[T] = []
        odd: list[int] = []
        for start in range(0, len(texts), 512):
            batch = texts[start : start + 512]
            try:
                # One by one, natively: joining them into lines first costs a copy of them all.
                out += list(map(self.decoder.decode, batch))
            except (msgspec.DecodeError, RecursionError):
                for place, text in enumerate(batch, start):
                    try:
                        out.append(self.decoder.decode(text))
                    except (msgspec.DecodeError, RecursionError):
                        out.append(self._decode_by_member(text))
                        odd.append(place)
        return out, odd

    def one(self, text: Raw) -> T:
        """The struct of one text; a member of another type than declared counts as absent."""
        try:
            return self.decoder.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return self._decode_by_member(text)

    def _decode_by_member(self, text: Raw) -> T:
        """The struct of a text that is not of this shape, as far as its members are."""
        value = self.cls()
        try:
            members = MEMBERS.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return value
        for name, raw in members.items():
            if name in self.fields:
                field, decoder = self.fields[name]
                try:
                    setattr(value, field, decoder.decode(raw))
                except (msgspec.DecodeError, RecursionError):
                    setattr(value, field, _value_of_other_type(name, raw, getattr(value, field)))
        return value


MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
ITEMS_DECODER: Final = msgspec.json.Decoder(list[Raw])


def _value_of_other_type(name: str, raw: Raw, default: Any) -> Any:
    """What a member of an unexpected type counts as."""
    if name == "content":
        try:
            return [BLOCK_DECODER.one(item) for item in ITEMS_DECODER.decode(raw)]
        except (msgspec.DecodeError, RecursionError):
            return [OTHER_CONTENT]
    return None if name in {"type", "text", "_meta"} else default


MSG: Final = LenientDecoder(Msg)
PARAMS: Final = LenientDecoder(Params)
RESULT: Final = LenientDecoder(Result)
BLOCK_DECODER: Final = LenientDecoder(Block)
ERROR: Final = LenientDecoder(Error)
EVENT_DECODER: Final[msgspec.json.Decoder[AnyEvent]] = msgspec.json.Decoder(AnyEvent)
