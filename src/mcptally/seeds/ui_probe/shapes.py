"""JSON shapes of the UI probe document, and the differences between a value and a shape.

A shape is one of

- a type: "string", "number", "boolean", "any" or "record" (an object with any members);
- a tuple of the allowed strings;
- a list with one element, the shape of every item;
- a dict from member names to shapes. A name that ends in `?` is an optional member. Members that
  the shape does not name are allowed.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_FIELD: Final = {
    "name": "string",
    "type": "string",
    "selector": "string",
    "required?": "boolean",
    "rules?": ["string"],
    "policy?": {
        **dict.fromkeys(("min?", "max?", "upper?", "digit?", "symbol?"), "number"),
        "pattern?": "string",
    },
    "placeholder?": "string",
    "label?": "string",
}
FORM: Final = {
    "name": "string",
    "selector?": "string",
    "fields": [_FIELD],
    "submit": {"selector": "string", "text?": "string"},
}
"""A form as the program's schema describes it."""


class Issue(NamedTuple):
    """One difference between a value and a shape."""

    path: tuple[str | int, ...]
    """Names of members and numbers of items that lead to it."""
    code: str
    """`invalid_type` (also for a missing member) or `invalid_enum_value`."""


_ABSENT: Final = object()


def differences(value: Any, shape: Any, path: tuple[str | int, ...] = ()) -> Iterator[Issue]:
    """The differences between a value and a shape, in the order of the shape's members."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            yield Issue(path, "invalid_type")
            return
        for key, inner in shape.items():
            name = key.removesuffix("?")
            member = value.get(name, _ABSENT)
            if member is not _ABSENT or not key.endswith("?"):
                yield from differences(member, inner, (*path, name))
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield Issue(path, "invalid_type")
            return
        for number, item in enumerate(value):
            yield from differences(item, shape[0], (*path, number))
    elif isinstance(shape, tuple):
        if not isinstance(value, str):
            yield Issue(path, "invalid_type")
        elif value not in shape:
            yield Issue(path, "invalid_enum_value")
    elif not has_type(value, shape):
        yield Issue(path, "invalid_type")


def has_type(value: Any, kind: str) -> bool:
    """Whether a JSON value has one of the types that a shape can name."""
    if kind == "any":
        return True
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, {"string": str, "boolean": bool, "record": dict}[kind])


def as_double(value: Any) -> float | None:
    """A JSON number as a float; None for other values and for integers too large for a float."""
    if not has_type(value, "number"):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
