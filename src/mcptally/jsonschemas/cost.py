"""Limits the cost of validating values against untrusted schemas.

Schemas that may take exponential time are rejected before an engine sees them. All errors in a
value are collected only if that is cheap; otherwise, only the first error is
(docs/design/protocol.md).
"""

import functools
import itertools
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import jsonschema_rs
import msgspec

from mcptally.jsonschemas.dialects import UnusableSchemaError
from mcptally.jsonschemas.walk import (
    BELOW_MAP,
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
"""Maximum number of steps: the subschemas that apply along one path from a value's root to a leaf.
A step takes up to 20 µs. Of 696 recorded schemas, none needs more than 23."""

MAX_STEPS_OF_ALL_ERRORS: Final = 32
"""Number of steps up to which all errors are collected, regardless of the value's size."""

MAX_WORK_OF_ALL_ERRORS: Final = 4_000
"""Maximum product of steps and value size in bytes for which all errors are collected (about 25
ms)."""

MAX_TARGETS: Final = 16
"""Maximum number of possible targets of a reference whose ids are ambiguous; in recorded schemas,
every reference has only one target."""

MAX_BYTES_OF_ALL_ERRORS: Final = 1 << 20
"""Maximum size of a value in bytes for collecting all errors, which can take 600 times as much
memory."""

MAX_STEPS_OF_AN_ERROR: Final = 1_000
"""Number of steps above which not even the first error is collected, because that error may contain
the errors of all branches."""

_LIST_BYTES_PER_STEP: Final = 256
"""Number of bytes of an `enum`, or of a list of member names, that are counted as one step."""

VALUE_DEPTH: Final = 64
"""Maximum depth of a value up to which the steps of a schema are counted."""


def max_value_depth(schema: Any) -> int | None:
    """Return the smallest depth at which validating a value may cost too much.

    Returns None if there is no such depth. Without references, a schema is a tree, and its size
    bounds the cost. With references or `unevaluated…` keywords, which evaluate all subschemas a
    second time, this function counts the steps (see `MAX_STEPS`).

    Raises:
        UnusableSchemaError: a reference leads back to itself without descending into the value, or
            even a flat value costs too much.
    """
    for deep, steps in enumerate(_steps_by_depth(schema)):
        if steps > MAX_STEPS:
            if not deep:
                raise UnusableSchemaError(f"over {MAX_STEPS} subschemas would apply to one value")
            return deep
    return None


class ErrorCost:
    """Decides whether collecting all errors in a value would cost too much.

    Each error takes up to 20 µs, so that a schema of 30 kB could take a minute for a value of 8 kB.
    Numbers that depend only on the schema are computed once, on first use.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    def is_costly(self, value: Any) -> bool:
        """Return whether collecting all errors in `value` would cost too much."""
        return self.costly_steps(len(msgspec.json.encode(value))) is not None

    def costly_steps(self, size: int) -> int | None:
        """Return the schema's steps if they are too costly for a value of this size, else None.

        Args:
            size: size of the value in bytes.
        """
        if self._bytes * size <= MAX_WORK_OF_ALL_ERRORS:
            return None
        steps = self._steps
        costly = steps > MAX_STEPS_OF_ALL_ERRORS and steps * size > MAX_WORK_OF_ALL_ERRORS
        return steps if costly else None

    @functools.cached_property
    def _bytes(self) -> int:
        return len(msgspec.json.encode(self._schema))

    @functools.cached_property
    def _steps(self) -> int:
        return max(_steps_by_depth(self._schema), default=0)


def collect_errors(validator: Any, cost: ErrorCost | None, value: Any) -> list[Any]:
    """Return the errors that a jsonschema-rs validator finds in an invalid value.

    If collecting all errors would cost too much, returns only the first error. Returns an empty
    list if collecting even one error would cost too much, or if the value is nested too deeply for
    the engine.

    Args:
        validator: a validator of jsonschema-rs.
        cost: the cost of errors for this schema; None if the schema is trusted.
        value: a value that the validator rejects.
    """
    size = len(msgspec.json.encode(value))
    steps = None if cost is None else cost.costly_steps(size)
    try:
        if steps is None and size <= MAX_BYTES_OF_ALL_ERRORS:
            return list(validator.iter_errors(value))
        if steps is None or steps <= MAX_STEPS_OF_AN_ERROR:
            validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return [error]
    except ValueError:
        return []
    return []


def _steps_by_depth(schema: Any) -> Iterator[int]:
    """Yield the number of steps (see `MAX_STEPS`) for values of depth 0, 1, 2 and so on.

    Raises:
        UnusableSchemaError: a reference leads back to itself for the same value.
    """
    edges = _reached(References(schema))
    order = _order(edges)
    below: dict[str, int] = dict.fromkeys(edges, 0)
    leaves = {at: min(edges[at].own, MAX_STEPS + 1) for at in order if edges[at].is_leaf()}
    inner = [at for at in order if at not in leaves]
    for _ in range(VALUE_DEPTH):
        here = dict(leaves)
        for at in inner:
            here[at] = _steps(edges[at], below, here)
        yield here.get("", 0)
        if here == below:
            return
        below = here


class _Edges(NamedTuple):
    """The subschemas that a schema node applies, grouped by the values to which they apply."""

    here: tuple[str, ...]
    """Subschemas that apply to the same value."""
    either: tuple[tuple[str, ...], ...]
    """Groups of subschemas. From each group, one subschema applies to the same value, but which one
    is unknown, because references are ambiguous."""
    each: tuple[str, ...]
    """Subschemas that may apply to every child value."""
    one: tuple[str, ...]
    """Subschemas of which at most one applies to each child value."""
    times: int
    """How often the subschemas for the same value are evaluated."""
    own: int
    """Steps for the node's own keywords: 1, or more if these contain long lists."""

    def is_leaf(self) -> bool:
        """Return whether the node applies no subschemas."""
        return not (self.here or self.either or self.each or self.one)

    def for_same_value(self) -> Iterator[str]:
        """Yield all subschemas that may apply to the same value."""
        return itertools.chain(self.here, *self.either)


def _reached(references: References) -> dict[str, _Edges]:
    """Map the JSON Pointer of the root, and of each node reachable from it, to its `_Edges`."""
    edges: dict[str, _Edges] = {}
    todo = [""]
    while todo:
        at = todo.pop()
        node = references.objects.get(at)
        if node is not None and at not in edges:
            edges[at] = found = _edges(at, node, references)
            todo += [*found.for_same_value(), *found.each, *found.one]
    return edges


def _order(edges: dict[str, _Edges]) -> list[str]:
    """Return the nodes in an order in which a node's subschemas for the same value come first.

    The search is iterative, because an untrusted schema could exceed the recursion limit.

    Raises:
        UnusableSchemaError: a reference leads back to itself for the same value.
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
            if node in open_ or not open_.isdisjoint(edges[node].for_same_value()):
                raise UnusableSchemaError(
                    "a reference leads back to itself without descending into the value"
                )
            open_.add(node)
            todo.append((node, True))
            todo += [(target, False) for target in edges[node].for_same_value()]
    return list(order)


def _steps(node: _Edges, below: dict[str, int], here: dict[str, int]) -> int:
    """Return the number of steps (see `MAX_STEPS`) that a node needs.

    Args:
        node: the node's subschemas.
        below: maps each node to its steps for a value that is one level less deep.
        here: maps each node that applies to the same value to its steps.
    """
    same = sum([here.get(n, 1) for n in node.here])
    same += sum([max([here.get(n, 1) for n in group]) for group in node.either])
    total = node.own + node.times * same
    total += sum([below.get(n, 1) for n in node.each])
    total += max([below.get(n, 1) for n in node.one], default=0)
    return min(total, MAX_STEPS + 1)


_WITHOUT_SUBSCHEMA: Final = _Edges((), (), (), (), times=1, own=1)
_EXAMINED: Final = frozenset(
    (
        *(*IN_PLACE, *IN_PLACE_ONE, *IN_PLACE_MAP, *BELOW_ONE, *BELOW_MAP, *REFERENCES),
        *("prefixItems", "enum", "required", "dependentRequired"),
    )
)
"""The keywords that `_edges` examines."""


def _edges(at: str, node: dict[str, Any], references: References) -> _Edges:
    if _EXAMINED.isdisjoint(node):
        return _WITHOUT_SUBSCHEMA
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
                raise UnusableSchemaError(f"a reference may lead to over {MAX_TARGETS} subschemas")
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
    twice = "unevaluatedProperties" in node or "unevaluatedItems" in node
    # Long lists are costly: the error of an `enum` contains the list, and each missing member is an
    # error.
    lists = [node[key] for key in ("enum", "required", "dependentRequired") if key in node]
    own = 1 + sum(len(msgspec.json.encode(listed)) for listed in lists) // _LIST_BYTES_PER_STEP
    return _Edges(tuple(here), tuple(either), tuple(each), tuple(one), 2 if twice else 1, own)


def may_be_costly(text: str) -> bool:
    """Return whether a schema's JSON text may contain a keyword that makes validation costly."""
    # A `\u` escape may encode a letter of a keyword.
    return any(word in text for word in ("$ref", "Ref", "unevaluated", "\\u"))
