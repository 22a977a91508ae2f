"""Decides whether a frame is strict JSON, so that it can be copied into a transcript unchanged.

Every parser in use (msgspec, orjson, the standard library, DuckDB, polars) accepts strict JSON:
valid UTF-8, no byte order mark, no NaN, no lone surrogate, no number beyond the range of a double,
no nesting deeper than `nesting.MAX_DEPTH`. Duplicate keys are allowed.
"""

import re
from typing import Final

import msgspec

from mcptally.wire.nesting import is_too_deep

_decode: Final = msgspec.json.Decoder().decode

_BOM: Final = b"\xef\xbb\xbf"

# The largest double is 1.8e308, so an integer of 310 digits overflows: msgspec decodes it exactly,
# orjson rejects it. In samples of every 32nd byte, a run of 310 digits covers at least nine
# samples.
_LONGEST_INTEGER: Final = 309
_STRIDE: Final = 32
_SAMPLED_DIGITS: Final = re.compile(rb"[0-9]{9}")
# Digits after a decimal point are not counted: every parser rounds them.
_DIGITS: Final = re.compile(rb"(?<![0-9.])[0-9]{%d}" % (_LONGEST_INTEGER + 1))
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')


def strict_json_error(frame: bytes) -> str | None:
    """Return why `frame` is not strict JSON, or None if it is strict JSON.

    The reasons: `blank`, `bom`, `not_utf8`, `too_deep`, `number_too_large`, `not_strict_json` (NaN,
    Infinity, a lone surrogate and so on, which some parsers accept) and `not_json`.
    """
    if is_too_deep(frame):
        return "too_deep"
    try:
        _decode(frame)
    except (msgspec.DecodeError, ValueError):
        return _reason(frame)
    if (
        len(frame) > _LONGEST_INTEGER
        and _SAMPLED_DIGITS.search(frame[::_STRIDE])
        and _DIGITS.search(_STRING.sub(b"", frame))
    ):
        return "number_too_large"
    return None


def _reason(frame: bytes) -> str:
    if not frame.strip():
        return "blank"
    if frame.startswith(_BOM):
        return "bom"
    try:
        text = frame.decode()
    except UnicodeDecodeError:
        return "not_utf8"
    # Only frames that msgspec rejects are parsed here; such frames are rare, so a slower parser is
    # acceptable.
    import json  # noqa: PLC0415

    try:
        json.loads(text)
    except ValueError as error:
        return "number_too_large" if "integer string conversion" in str(error) else "not_json"
    return "not_strict_json"
