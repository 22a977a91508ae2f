"""Converts a store's values to JSON, with times in UTC."""

import datetime
import json
from typing import Any

from mcptally.redaction.display import escape_controls
from mcptally.tables import values as cell_values


def plain(value: Any) -> Any:
    """Convert a value for JSON as `tables.values.plain` does, but with times as ISO 8601 in UTC."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="microseconds")
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return cell_values.plain(value)


def dumps(value: Any) -> bytes:
    """Encode a value as one line of JSON, with control characters escaped."""
    return escape_controls(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()
