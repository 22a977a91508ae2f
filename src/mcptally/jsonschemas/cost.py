"""What judging a value by a stranger's schema may cost, and what is left out where it is too much.

A schema whose evaluation may explode is refused before any engine sees it; errors are gathered
where that is cheap (docs/decisions/0076).
"""

import itertools
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import jsonschema_rs
import msgspec

from mcptally.jsonschemas.dialects import UnusableError
from mcptally.jsonschemas.walk import (
    BELOW_ONE,
    IN_PLACE,
    IN_PLACE_MAP,
    IN_PLACE_ONE,
    REFERENCES,
    References,
    keys,
    pointer,
)

MAX_STEPS: Final = 10_000
"""Subschemas that one value may be held against, along one path down into it; the most of the 696
schemas that were recorded is 23. A step costs up to 20 µs."""

STEPS_A_BYTE: Final = 32
"""Subschemas that a part of a value may be held against, however large the value is, and all its
errors are still gathered."""

PATIENCE: Final = 4_000
"""Subschemas times bytes of a value up to which all its errors are gathered: some 25 ms."""

MAX_TARGETS: Final = 16
"""Subschemas that one reference may lead to, where names are alike; recorded ones lead to one."""

LARGE: Final = 1 << 20
"""Bytes of a value up to which all its errors are gathered: they take up to 600 times as many."""

MAX_STEPS_OF_AN_ERROR: Final = 1_000
"""Subschemas beyond which not even one error is asked for: it holds those of every branch."""

_LISTED: Final = 256
"""Bytes of an `enum` or of names of members that count as a subschema."""

VALUE_DEPTH: Final = 64
"""The steps are counted for values as deep as this."""


def deepest_value(schema: Any) -> int | None:
    """How deep a value may be before judging it may cost too much; None: it does not matter.

    Without references a schema is a tree and costs at most its size a value. With them, or with
    `unevaluated…`, for which all that holds for a value is gone through again, the subschemas that
    one value is held against are counted along one path down into it.

    Raises:
        UnusableError: a reference leads back to itself on the spot, or a flat value costs too much.
    """
    for deep, steps in enumerate(_steps_by_depth(schema)):
        if steps > MAX_STEPS:
            if not deep:
                raise UnusableError(f"a value would be held against over {MAX_STEPS} subschemas")
            return deep
    return None


def errors_of(validator: Any, schema: Any, value: Any) -> list[Any]:
    """The errors of an invalid value, by a validator of jsonschema-rs made of a schema.

    They are all there are; or the one that it comes to first, where to gather all would take too
    much; or none, where that one would, or the value is nested deeper than the engine tells of.
    The schema is None where it is ours and holds no trap.
    """
    size = len(msgspec.json.encode(value))
    steps = None if schema is None else _costly_steps(schema, size)
    try:
        if steps is None and size <= LARGE:
            return list(validator.iter_errors(value))
        if steps is None or steps <= MAX_STEPS_OF_AN_ERROR:
            validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return [error]
    except ValueError:
        return []
    return []


def is_costly(schema: Any, value: Any) -> bool:
    """Whether to gather all errors of a value takes longer than a stranger's schema may."""
    return _costly_steps(schema, len(msgspec.json.encode(value))) is not None


def _costly_steps(schema: Any, size: int) -> int | None:
    """Subschemas that a part of a value is held against, if that is too many for its bytes.

    Each error takes up to 20 µs: a schema of 30 kB could keep us busy for a minute by a value of
    8 kB.
    """
    if len(msgspec.json.encode(schema)) * size <= PATIENCE:
        return None
    steps = max(_steps_by_depth(schema), default=0)
    return steps if steps > STEPS_A_BYTE and steps * size > PATIENCE else None


def _steps_by_depth(schema: Any) -> Iterator[int]:
    """Subschemas that a value is held against, along one path down into it, level by level.

    Raises:
        UnusableError: a reference leads back to itself on the spot.
    """
    edges = _reached(References(schema))
    order = _order(edges)
    below: dict[str, int] = dict.fromkeys(edges, 0)
    for _ in range(VALUE_DEPTH):
        here: dict[str, int] = {}
        for at in order:
            here[at] = _steps(edges[at], below, here)
        yield here.get("", 0)
        if here == below:
            return
        below = here


class _Edges(NamedTuple):
    here: tuple[str, ...]
    """Subschemas that hold for the same value."""
    either: tuple[tuple[str, ...], ...]
    """Likewise, of each group one: what a reference may lead to, where that is not certain."""
    each: tuple[str, ...]
    """Subschemas that may hold for any value below."""
    one: tuple[str, ...]
    """Subschemas of which one at most holds for a value below."""
    times: int
    """How often those that hold for the same value are gone through."""
    own: int
    """What the node's own keywords count: 1, and what long lists of them add."""

    def on_the_spot(self) -> Iterator[str]:
        """All that may hold for the same value."""
        return itertools.chain(self.here, *self.either)


def _reached(references: References) -> dict[str, _Edges]:
    """The edges of the root and of whatever may be come to from it."""
    edges: dict[str, _Edges] = {}
    todo = [""]
    while todo:
        at = todo.pop()
        node = references.objects.get(at)
        if node is not None and at not in edges:
            edges[at] = found = _edges(at, node, references)
            todo += [*found.on_the_spot(), *found.each, *found.one]
    return edges


def _order(edges: dict[str, _Edges]) -> list[str]:
    """The nodes, each after those that hold for the same value; without recursion: untrusted.

    Raises:
        UnusableError: a reference leads back to itself on the spot.
    """
    order: dict[str, None] = {}
    open_: set[str] = set()
    todo = [(at, False) for at in reversed(edges)]
    while todo:
        node, done = todo.pop()
        if done:
            order[node] = None
            open_.discard(node)
        elif node in edges and node not in order:
            if node in open_ or not open_.isdisjoint(edges[node].on_the_spot()):
                raise UnusableError(
                    "a reference leads back to itself without going down into a value"
                )
            open_.add(node)
            todo.append((node, True))
            todo += [(target, False) for target in edges[node].on_the_spot()]
    return list(order)


def _steps(node: _Edges, below: dict[str, int], here: dict[str, int]) -> int:
    """Subschemas that a value is held against at a node, from those of the level below."""
    same = sum([here.get(n, 1) for n in node.here])
    same += sum([max([here.get(n, 1) for n in group]) for group in node.either])
    total = node.own + node.times * same
    total += sum([below.get(n, 1) for n in node.each])
    total += max([below.get(n, 1) for n in node.one], default=0)
    return min(total, MAX_STEPS + 1)


def _edges(at: str, node: dict[str, Any], references: References) -> _Edges:
    here = [
        f"{at}/{key}/{i}"
        for key in IN_PLACE
        if isinstance(node.get(key), list)
        for i in range(len(node[key]))
    ]
    here += [f"{at}/{key}" for key in IN_PLACE_ONE if key in node]
    here += [f"{at}{pointer((key, name))}" for key in IN_PLACE_MAP for name in keys(node.get(key))]
    either = []
    for key in REFERENCES:
        if isinstance(reference := node.get(key), str):
            targets = references.targets(at, key, reference)
            if len(targets) > MAX_TARGETS:
                raise UnusableError(f"a reference may lead to over {MAX_TARGETS} subschemas")
            if len(targets) > 1:
                either.append(tuple(targets))
            else:
                here += targets
    each = [f"{at}/{key}" for key in BELOW_ONE if isinstance(node.get(key), dict)]
    each += [
        f"{at}{pointer(('patternProperties', name))}"
        for name in keys(node.get("patternProperties"))
    ]
    one = [f"{at}{pointer(('properties', name))}" for name in keys(node.get("properties"))]
    for key in ("prefixItems", "items"):
        if isinstance(node.get(key), list):
            one += [f"{at}/{key}/{i}" for i in range(len(node[key]))]
    again = "unevaluatedProperties" in node or "unevaluatedItems" in node
    # Each error holds the options and the value, each missing member another error.
    lists = [node[key] for key in ("enum", "required", "dependentRequired") if key in node]
    own = 1 + sum(len(msgspec.json.encode(listed)) for listed in lists) // _LISTED
    return _Edges(tuple(here), tuple(either), tuple(each), tuple(one), 2 if again else 1, own)


def may_explode(text: str) -> bool:
    """Whether a schema's JSON text has a keyword that `deepest_value` has to look at."""
    # An escape may spell any of them.
    return any(word in text for word in ("$ref", "Ref", "unevaluated", "\\u"))
