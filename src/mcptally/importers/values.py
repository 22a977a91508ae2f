"""Converts values in logs: parses JSON in strings, and extracts text, objects and results."""

import re
from typing import Any, Final

import msgspec

from mcptally.wire.strict_json import strict_json_error

ERROR_CODE: Final = re.compile(r"MCP error (?P<code>-?\d+): ?(?P<message>.*)\Z", re.DOTALL)
"""Matches the text that SDKs create from a JSON-RPC error."""


def parsed(value: Any) -> Any:
    """Decode a value if it is a JSON text; return other values unchanged."""
    if isinstance(value, str) and strict_json_error(value.encode(errors="replace")) is None:
        return msgspec.json.decode(value)
    return value


def text_of(value: Any) -> str | None:
    """Return the value if it is a non-empty string, else None."""
    return value if isinstance(value, str) and value else None


def dict_of(value: Any) -> dict[str, Any]:
    """Return an object, given the object or its JSON text; an empty object for other values."""
    value = parsed(value)
    return value if isinstance(value, dict) else {}


def unwrapped(value: Any) -> tuple[Any, bool]:
    """Return the result in a LangChain message, and whether the tool failed.

    Other values are returned unchanged.
    """
    message = parsed(value)
    if isinstance(message, dict) and message.get("type") == "tool":
        data = message["data"] if isinstance(message.get("data"), dict) else message
        return data.get("content", value), data.get("status") == "error"
    return value, False
