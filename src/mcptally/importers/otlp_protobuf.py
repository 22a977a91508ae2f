"""Converts a trace request of OTLP from protobuf to the values of its JSON.

A message is a table of the fields that a reader of spans uses; other fields are skipped. Their
numbers are those of opentelemetry/proto/{trace,common,resource}/v1.
"""

import base64
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

_Message: TypeAlias = dict[int, tuple[str, Any]]
"""Number of a field → its name in JSON, and its type: a converter, a message, or a list of one."""


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _double(value: int) -> float:
    number: float = struct.unpack("<d", value.to_bytes(8, "little"))[0]
    return number


_VALUE: Final[_Message] = {
    1: ("stringValue", _text),
    2: ("boolValue", bool),
    3: ("intValue", _signed),
    4: ("doubleValue", _double),
    7: ("bytesValue", _base64),
}
_ATTRIBUTE: Final[_Message] = {1: ("key", _text), 2: ("value", _VALUE)}
_VALUE[5] = ("arrayValue", {1: ("values", [_VALUE])})
_VALUE[6] = ("kvlistValue", {1: ("values", [_ATTRIBUTE])})
_SPAN: Final[_Message] = {
    1: ("traceId", bytes.hex),
    2: ("spanId", bytes.hex),
    4: ("parentSpanId", bytes.hex),
    5: ("name", _text),
    6: ("kind", int),
    7: ("startTimeUnixNano", str),
    8: ("endTimeUnixNano", str),
    9: ("attributes", [_ATTRIBUTE]),
    11: ("events", [{2: ("name", _text), 3: ("attributes", [_ATTRIBUTE])}]),
    15: ("status", {2: ("message", _text), 3: ("code", int)}),
}
_SCOPE: Final[_Message] = {1: ("name", _text), 2: ("version", _text)}
_GROUP: Final[_Message] = {
    1: ("resource", {1: ("attributes", [_ATTRIBUTE])}),
    2: ("scopeSpans", [{1: ("scope", _SCOPE), 2: ("spans", [_SPAN])}]),
}
_REQUEST: Final[_Message] = {1: ("resourceSpans", [_GROUP])}

_FIXED: Final = {1: 8, 5: 4}
"""Wire type → bytes."""
_OF_BYTES: Final[tuple[Callable[..., Any], ...]] = (_text, _base64, bytes.hex)


def trace_request(data: bytes) -> dict[str, Any]:
    """An `ExportTraceServiceRequest` as the values of its JSON.

    Raises:
        ValueError: the bytes are no such message.
        RecursionError: attributes are nested too deeply.
    """
    return _message(data, _REQUEST)


def _message(data: bytes, types: _Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(data):
        name, type_ = types.get(number, ("", None))
        if type_ is None:
            continue
        repeated, type_ = isinstance(type_, list), type_[0] if isinstance(type_, list) else type_
        if isinstance(value, bytes) != (isinstance(type_, dict) or type_ in _OF_BYTES):
            raise ValueError(f"the type of the field {name}")
        one = _message(value, type_) if isinstance(type_, dict) else type_(value)
        if repeated:
            found.setdefault(name, []).append(one)
        else:
            found[name] = one
    return found


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field: an integer, or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value: int | bytes
        if key & 7 == 0:
            value, at = _varint(data, at)
        elif key & 7 == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        elif size := _FIXED.get(key & 7, 0):
            value, at = int.from_bytes(data[at : at + size], "little"), at + size
        else:
            raise ValueError(f"wire type {key & 7}")
        if at > len(data):
            raise ValueError("cut off")
        yield key >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that starts at `at`, and where it ends."""
    number = 0
    for shift, byte in enumerate(data[at : at + 10]):
        number |= (byte & 127) << 7 * shift
        if byte < 128:
            return number & 2**64 - 1, at + shift + 1
    raise ValueError("cut off")
