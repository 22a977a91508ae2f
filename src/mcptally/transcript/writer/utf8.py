"""Replaces undecodable bytes in strings from the operating system: JSON cannot represent them."""

from typing import Any


def to_utf8(text: str) -> str:
    """Return the text with undecodable bytes (surrogates) replaced."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def all_to_utf8(value: Any) -> Any:
    """Return the value with `to_utf8` applied to every string in it."""
    if isinstance(value, str):
        return to_utf8(value)
    if isinstance(value, list):
        return [all_to_utf8(item) for item in value]
    if isinstance(value, dict):
        return {key: all_to_utf8(item) for key, item in value.items()}
    return value
