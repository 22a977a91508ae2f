"""Decodes JSON texts from untrusted sources: a text that does not fit gives None."""

from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

ANY: Final = msgspec.json.Decoder()
"""Decodes any JSON value."""


def decode_or_none(decoder: msgspec.json.Decoder[T], text: bytes | str) -> T | None:
    """The value of a JSON text; None if it is not JSON, nested too deep or of another type."""
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
