"""Values of a store as JSON has them: as everywhere (`cells.plain`), but times in UTC."""

import datetime
import json
from typing import Any

import pyarrow as pa

from mcptally.output import values as cell_values
from mcptally.redaction.display import escaped


def plain(value: Any) -> Any:
    """A value as JSON can hold it, times as ISO 8601 to the microsecond."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="microseconds")
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return cell_values.plain(value)


def dumps(value: Any) -> bytes:
    """One line of JSON, with nothing in it that a terminal acts on."""
    return escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def json_of_lists(column: pa.Array) -> pa.Array:
    """Lists and structs as their JSON text; other columns as they are."""
    if not pa.types.is_nested(column.type):
        return column
    texts = [None if v is None else dumps(plain(v)).decode() for v in column.to_pylist()]
    return pa.array(texts, pa.string())
