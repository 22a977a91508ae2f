"""Lists that say how many items there are: total_count, limit and offset against the items."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

NAMES: Final = ("total_count", "limit", "offset")
"""Members, or attributes of an XML root, that count a list (Redmine seed)."""


def counted(told: Mapping[str, Any], items: int) -> Iterator[str]:
    """What is wrong with the counts of a list that holds `items`; nothing if it tells none."""
    if "total_count" not in told:
        return
    numbers: dict[str, int] = {}
    for name in NAMES:
        if name in told:
            number = _number(told[name])
            if number is None:
                yield f"{name} is {str(told[name])[:40]!r}, no count"
                return
            numbers[name] = number
    total, offset = numbers["total_count"], numbers.get("offset", 0)
    limit = numbers.get("limit")
    if limit is not None and items > limit:
        yield f"{items} items where limit is {limit}"
    if items and offset + items > total:
        yield f"offset {offset} and {items} items are more than total_count {total}"
    expected = max(0, total - offset)
    if limit is not None:
        # A server may cap the limit it was asked for; then it says the one it kept to.
        expected = min(expected, limit)
        if items < expected:
            yield f"{items} items where total_count {total} and offset {offset} leave {expected}"


def listed(value: Any) -> Iterator[str]:
    """What is wrong with the counts of a JSON object, beside which exactly one array stands."""
    if isinstance(value, dict) and "total_count" in value:
        arrays = [item for item in value.values() if isinstance(item, list)]
        if len(arrays) == 1:
            yield from counted(value, len(arrays[0]))


def _number(value: Any) -> int | None:
    """A count: an integer from 0, or its digits."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 15:
        return int(value)
    return None
