"""Finds differences between values and the JSON shapes that the UI probe document describes.

`ui_probe.toml` contains the shapes, and explains their format.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from mcptally.toml_files import read_toml

SHAPES: Final = read_toml("seeds/ui_probe.toml")
"""The shapes by name; those of one interpretation are under `document` or `program`."""


class Issue(NamedTuple):
    """A difference between a value and a shape."""

    path: tuple[str | int, ...]
    """Member names and item positions that lead to the difference."""
    code: str
    """`invalid_type` (also for a missing member) or `invalid_enum_value`."""


_ABSENT: Final = object()


def differences(value: Any, shape: Any, path: tuple[str | int, ...] = ()) -> Iterator[Issue]:
    """Yield the differences between a value and a shape, in the order of the shape's members."""
    if isinstance(shape, str) and shape.startswith("@"):
        shape = named(shape[1:])
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            yield Issue(path, "invalid_type")
            return
        for key, inner in shape.items():
            name = key.removesuffix("?")
            member = value.get(name, _ABSENT)
            if member is not _ABSENT or not key.endswith("?"):
                yield from differences(member, inner, (*path, name))
    elif isinstance(shape, list) and len(shape) == 1:
        if not isinstance(value, list):
            yield Issue(path, "invalid_type")
            return
        for number, item in enumerate(value):
            yield from differences(item, shape[0], (*path, number))
    elif isinstance(shape, list):
        if not isinstance(value, str):
            yield Issue(path, "invalid_type")
        elif value not in shape:
            yield Issue(path, "invalid_enum_value")
    elif not has_type(value, shape):
        yield Issue(path, "invalid_type")


def named(name: str) -> Any:
    """Return the shape that a dotted name, such as `program.run`, refers to."""
    shape: Any = SHAPES
    for part in name.split("."):
        shape = shape[part]
    return shape


def has_type(value: Any, kind: str) -> bool:
    """Return whether a JSON value has the type that a shape names."""
    if kind == "any":
        return True
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, {"string": str, "boolean": bool, "record": dict}[kind])


def as_double(value: Any) -> float | None:
    """Convert a JSON number to a float; return None for other values and for huge integers."""
    if not has_type(value, "number"):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
