"""Declares transcript events and JSON-RPC messages as msgspec structs, with decoders.

Payloads stay raw JSON (`Raw`); an empty `Raw` means that the member is absent. Members that are
nearly always strings are typed as strings. `LenientDecoder` treats a member of the wrong type as
absent, so that the rest of an invalid message is still decoded.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

ABSENT: Final = Raw()
_Int = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Signed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Status = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Version = Literal[1]


class Event(Struct, tag_field="event", gc=False):
    """The fields of every event."""

    recording: str
    seq: _Int
    ts_ns: _Int
    v: _Version


class MessageEvent(Event, tag="message"):
    """A frame of strict JSON."""

    dir: Literal["c2s", "s2c"]
    msg: "Msg | list[Raw]"
    scope: str | None = None
    bytes: _Int | None = None
    sse_id: str | None = None
    redacted: _Int | None = None
    model: str | None = None


class RawFrame(Event, tag="raw"):
    """A frame that is not strict JSON or exceeds the size limit."""

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
    model: str | None = None
    derived: bool = False


class StderrEvent(Event, tag="stderr"):
    """A line of the server's stderr."""

    text: str | None = None


class Headers(Struct, gc=False, rename="kebab"):
    """The HTTP headers that identify sessions and requests."""

    mcp_session_id: str | None = None
    mcp_protocol_version: str | None = None
    mcp_method: str | None = None
    mcp_name: str | None = None
    last_event_id: str | None = None


class HttpEvent(Event, tag="http"):
    """A request head, a response head, or the end of an HTTP exchange."""

    dir: Literal["c2s", "s2c"]
    phase: str
    scope: str | None = None
    method: str | None = None
    path: str | None = None
    status: _Status | None = None
    closed_by: str | None = None
    why: str | None = None
    headers: Headers | None = None


class OpenEvent(Event, tag="open"):
    """The first event of a segment."""

    transport: str | None = None
    server: str | None = None
    command: Raw = ABSENT
    url: str | None = None
    recorder: str | None = None
    redaction: Raw = ABSENT
    source: Raw = ABSENT
    segment: _Int | None = None


class CloseEvent(Event, tag="close"):
    """The last event of a complete recording."""

    reason: str | None = None
    exit_code: _Signed | None = None
    signal: Raw = ABSENT
    counts: Raw = ABSENT
    detail: str | None = None


class GapEvent(Event, tag="gap"):
    """Reports how many events the recorder could not write."""

    lost: _Int | None = None
    why: str | None = None


class Msg(Struct, gc=False):
    """A JSON-RPC message, valid or not."""

    jsonrpc: Raw = ABSENT
    id: Raw = ABSENT
    method: str | None = None
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


class RequestMeta(Struct, gc=False):
    """The members of `params._meta` that at least one stage uses."""

    progress_token: Raw = msgspec.field(default=ABSENT, name="progressToken")
    protocol_version: str | None = msgspec.field(
        default=None, name="io.modelcontextprotocol/protocolVersion"
    )
    client_info: Raw = msgspec.field(default=ABSENT, name="io.modelcontextprotocol/clientInfo")
    capabilities: Raw = msgspec.field(
        default=ABSENT, name="io.modelcontextprotocol/clientCapabilities"
    )
    traceparent: str | None = None


class Params(Struct, gc=False, rename="camel"):
    """The members of `params`, across all methods, that at least one stage uses."""

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
    """A content block; a member is None if it is null or not a string."""

    type: str | UnsetType | None = UNSET
    text: str | UnsetType | None = UNSET
    data: Raw = ABSENT
    mime_type: Raw = ABSENT
    uri: Raw = ABSENT
    annotations: Raw = ABSENT
    meta: Raw = msgspec.field(default=ABSENT, name="_meta")


class ResultMeta(Struct, gc=False):
    """The members of `result._meta` that at least one stage uses."""

    server_info: Raw = msgspec.field(default=ABSENT, name="io.modelcontextprotocol/serverInfo")
    subscription: Raw = msgspec.field(default=ABSENT, name="io.modelcontextprotocol/subscriptionId")


class Result(Struct, gc=False, rename="camel"):
    """The members of `result`, across all methods, that at least one stage uses."""

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
    """A JSON-RPC error object."""

    code: _Signed | None = None
    message: str | None = None
    data: Raw = ABSENT


FRAME_OF_EVENT: Final[dict[type[Struct], str]] = {
    MessageEvent: "messages",
    RawFrame: "raws",
    StderrEvent: "stderr",
    HttpEvent: "http",
    OpenEvent: "opens",
    CloseEvent: "closes",
    GapEvent: "gaps",
}
"""Maps types of events to the data frames for their rows."""

AnyEvent = MessageEvent | RawFrame | StderrEvent | HttpEvent | OpenEvent | CloseEvent | GapEvent

OTHER_CONTENT: Final = Block(type=None)
"""Represents a `content` that is not an array."""

T = TypeVar("T", bound=Struct)


class LenientDecoder(Generic[T]):
    """Decodes JSON texts to `cls`; a text that does not fit is decoded member by member."""

    def __init__(self, cls: type[T]) -> None:
        hints = get_type_hints(cls, include_extras=True)
        self.cls = cls
        self.decode: Callable[[Raw], T] = msgspec.json.Decoder(cls).decode
        self.fields = {
            field.encode_name: (field.name, msgspec.json.Decoder(hints[field.name]))
            for field in msgspec.structs.fields(cls)
        }

    def many(self, texts: Sequence[Raw]) -> tuple[list[T], list[int]]:
        """Return one struct per text, in order, and the indexes of texts that do not fit `cls`."""
        out: list[T] = []
        odd: list[int] = []
        # Decode one by one: joining the texts into lines would copy all of them.
        decoded = map(self.decode, texts)
        while len(out) < len(texts):
            try:
                out.extend(decoded)
            except (msgspec.DecodeError, RecursionError):
                # The preceding texts are in `out`; `decoded` continues with the next text.
                odd.append(len(out))
                out.append(self._decode_by_member(texts[len(out)]))
        return out, odd

    def one(self, text: Raw) -> T:
        """Decode one text; a member of the wrong type counts as absent."""
        try:
            return self.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return self._decode_by_member(text)

    def _decode_by_member(self, text: Raw) -> T:
        """Decode a text that does not fit the struct, leaving out the members that do not fit."""
        value = self.cls()
        try:
            members = MEMBERS_DECODER.decode(text)
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


MEMBERS_DECODER: Final = msgspec.json.Decoder(dict[str, Raw])
ITEMS_DECODER: Final = msgspec.json.Decoder(list[Raw])


def _value_of_other_type(name: str, raw: Raw, default: Any) -> Any:
    """Return the value that replaces a member of the wrong type."""
    if name == "content":
        try:
            return [BLOCK_DECODER.one(item) for item in ITEMS_DECODER.decode(raw)]
        except (msgspec.DecodeError, RecursionError):
            return [OTHER_CONTENT]
    return None if name in {"type", "text", "_meta"} else default


MSG_DECODER: Final = LenientDecoder(Msg)
PARAMS_DECODER: Final = LenientDecoder(Params)
BLOCK_DECODER: Final = LenientDecoder(Block)
ERROR_DECODER: Final = LenientDecoder(Error)
EVENT_DECODER: Final[msgspec.json.Decoder[AnyEvent]] = msgspec.json.Decoder(AnyEvent)
