"""Values of a store as JSON has them: times as ISO 8601 in UTC, NaN as null."""

import datetime
import json
import math
from typing import Any

import pyarrow as pa

from mcptally.sanitise import escaped


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="microseconds")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def dumps(value: Any) -> bytes:
    """One line of JSON, with nothing in it that a terminal acts on."""
    return escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def json_of_lists(column: pa.Array) -> pa.Array:
    """Lists and structs as their JSON text; other columns as they are."""
    if not pa.types.is_nested(column.type):
        return column
    texts = [None if v is None else dumps(plain(v)).decode() for v in column.to_pylist()]
    return pa.array(texts, pa.string())
