"""Parses JSON with comments and trailing commas, and keeps each value's position in the text.

With these positions, a configuration file can be edited in place: an edit replaces a few characters
and preserves comments, order and layout.
"""

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any, Final


class JsoncError(ValueError):
    """Raised for invalid text. The message names the line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A value and its position: the characters `text[start:end]`."""

    start: int
    end: int
    value: Any
    """The Python value of a string, number or boolean; None for null, an object or an array."""
    members: tuple[tuple[str, "Node"], ...] | None = None
    """An object's names and values in order, including duplicates; None for other values."""
    items: tuple["Node", ...] | None = None
    """The values of an array; None for other values."""

    def get(self, name: str) -> "Node | None":
        """Return the value of the member `name` (the last one if it is repeated), or None."""
        found = [node for key, node in self.members or () if key == name]
        return found[-1] if found else None

    def strings(self) -> list[str] | None:
        """Return the strings in an array of strings; None for any other value."""
        if self.items is None or not all(isinstance(item.value, str) for item in self.items):
            return None
        return [item.value for item in self.items]

    def walk(self) -> Iterator["Node"]:
        """Yield this value and all values nested in it."""
        yield self
        for _, node in self.members or ():
            yield from node.walk()
        for node in self.items or ():
            yield from node.walk()


_SPACE: Final = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_SCALAR: Final = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
_MAX_DEPTH: Final = 200


def parse(text: str) -> Node:
    """Parse `text`, which must contain a single value.

    Raises:
        JsoncError: the text is not valid, or text follows the value.
    """
    node = _value(text, _skip_space(text, 1 if text.startswith("\ufeff") else 0), 0)
    if (end := _skip_space(text, node.end)) != len(text):
        raise _error(text, end, "unexpected text after the end")
    return node


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _error(text: str, position: int, reason: str) -> JsoncError:
    return JsoncError(f"line {text.count(chr(10), 0, position) + 1}: {reason}")


def _value(text: str, position: int, depth: int) -> Node:
    char = text[position : position + 1]
    if char in {"{", "["}:
        if depth > _MAX_DEPTH:
            raise _error(text, position, "nested too deep")
        return _object(text, position, depth) if char == "{" else _array(text, position, depth)
    match = (_STRING if char == '"' else _SCALAR).match(text, position)
    try:
        if match is not None:
            return Node(position, match.end(), json.loads(match[0], strict=False))
    except ValueError:
        pass
    raise _error(text, position, "expected a value")


def _object(text: str, start: int, depth: int) -> Node:
    members = []
    position = _skip_space(text, start + 1)
    while text[position : position + 1] != "}":
        if text[position : position + 1] != '"':
            raise _error(text, position, "expected a name in double quotes")
        name = _value(text, position, depth)
        position = _skip_space(text, name.end)
        if text[position : position + 1] != ":":
            raise _error(text, position, "expected ':'")
        node = _value(text, _skip_space(text, position + 1), depth + 1)
        members.append((name.value, node))
        position = _after_item(text, node.end, "}")
    return Node(start, position + 1, None, members=tuple(members))


def _array(text: str, start: int, depth: int) -> Node:
    items = []
    position = _skip_space(text, start + 1)
    while text[position : position + 1] != "]":
        node = _value(text, position, depth + 1)
        items.append(node)
        position = _after_item(text, node.end, "]")
    return Node(start, position + 1, None, items=tuple(items))


def _after_item(text: str, position: int, closing: str) -> int:
    position = _skip_space(text, position)
    if text[position : position + 1] == ",":
        return _skip_space(text, position + 1)
    if text[position : position + 1] != closing:
        raise _error(text, position, f"expected ',' or '{closing}'")
    return position
