"""Decodes JSON from untrusted sources; text that cannot be decoded becomes None."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

ANY: Final = msgspec.json.Decoder()
"""A decoder for any JSON value."""


def decode_or_none(decoder: msgspec.json.Decoder[T], text: bytes | str) -> T | None:
    """Decode a JSON text; return None if it is invalid, too deep or of an unexpected type."""
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def json_value(text: Any) -> Any:
    """Decode a JSON text; return None if the argument is not a string or not valid JSON."""
    return decode_or_none(ANY, text) if isinstance(text, str) else None


def json_object(text: Any) -> dict[str, Any] | None:
    """Decode a JSON object; return None if the text is not a JSON object."""
    if not isinstance(text, str) or text.lstrip()[:1] != "{":
        return None
    value = json_value(text)
    return value if isinstance(value, dict) else None


def first_present(value: Mapping[str, Any], *names: str) -> Any:
    """Return the value of the first of the named members that is present and not null, or None."""
    return next((value[name] for name in names if value.get(name) is not None), None)
