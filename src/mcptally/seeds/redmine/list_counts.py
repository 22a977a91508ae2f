"""Compares a list's `total_count`, `limit` and `offset` with the number of its items."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

NAMES: Final = ("total_count", "limit", "offset")
"""Members of an object, or attributes of an XML root, that describe a list in the Redmine document.
"""


def count_messages(counts: Mapping[str, Any], items: int) -> Iterator[str]:
    """Yield a message for each count that contradicts the number of items in a list.

    Args:
        counts: the members or attributes that describe the list.
        items: number of items in the list.
    """
    if "total_count" not in counts:
        return
    numbers: dict[str, int] = {}
    for name in NAMES:
        if name in counts:
            number = _number(counts[name])
            if number is None:
                yield f"{name} is {str(counts[name])[:40]!r}, not a count"
                return
            numbers[name] = number
    total, offset = numbers["total_count"], numbers.get("offset", 0)
    limit = numbers.get("limit")
    if limit is not None and items > limit:
        yield f"{items} items but limit is {limit}"
    if items and offset + items > total:
        yield f"offset {offset} and {items} items exceed total_count {total}"
    expected = max(0, total - offset)
    if limit is not None:
        # The server reports the limit that it applied, which may be smaller than the requested
        # limit.
        expected = min(expected, limit)
        if items < expected:
            yield f"{items} items but total_count {total} and offset {offset} leave {expected}"


def object_messages(value: Any) -> Iterator[str]:
    """Yield a message for each count in a JSON object that contradicts its only array's length.

    Objects with no array, or with several, are not checked.
    """
    if isinstance(value, dict) and "total_count" in value:
        arrays = [item for item in value.values() if isinstance(item, list)]
        if len(arrays) == 1:
            yield from count_messages(value, len(arrays[0]))


def _number(value: Any) -> int | None:
    """Return a value if it is a non-negative integer, possibly written as text; otherwise None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 15:
        return int(value)
    return None
