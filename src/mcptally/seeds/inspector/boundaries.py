"""Finds calls with an argument at a boundary: empty, null, or at a limit that the schema sets."""

import functools
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl

from mcptally.jsonschemas import cost, dialects
from mcptally.tables.arrow import series_from_numpy
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Definitions, Validated
from mcptally.wire.json_text import json_value

_EMPTY: Final = r'""|\[[ \t\n\r]*\]|\{[ \t\n\r]*\}|null'
"""Matches arguments that may contain an empty value or null; it also matches inside strings."""

_LIMITS: Final = (
    *('"minimum"', '"maximum"', '"exclusiveMinimum"', '"exclusiveMaximum"'),
    *(f'"{end}{of}"' for end in ("min", "max") for of in ("Length", "Items", "Properties")),
)
"""Keywords that set a limit, as in the JSON text of a schema."""

_SCHEMAS: Final = [Definitions.definition.name, Definitions.input_schema.name]


def calls_at_boundary(rows: pl.DataFrame, definitions: pl.DataFrame) -> pl.Series:
    """Return, for each row, whether a value in the arguments is at a boundary.

    Arguments are parsed only if they may have a value at a boundary: if `_EMPTY` matches, or if the
    tool declares a limit.

    Args:
        rows: `definition` and `arguments` of calls.
        definitions: `Definitions` of the tools.
    """
    limited = [
        (definition, schema)
        for definition, schema in definitions[_SCHEMAS].iter_rows()
        if schema is not None and any(limit in schema for limit in _LIMITS)
    ]
    schemas = pl.LazyFrame(limited, schema=dict.fromkeys(_SCHEMAS, pl.String), orient="row")
    candidates = (
        rows.lazy()
        .select("definition", "arguments")
        .with_row_index("row")
        .filter(Validated.arguments.col.is_not_null())
        # Number distinct arguments first, because grouping by arguments and definition would copy
        # both columns.
        .group_by("arguments")
        .agg("definition", "row")
        .with_row_index("number")
        .explode("definition", "row", empty_as_null=False)
        .group_by("number", "definition")
        .agg("row", Validated.arguments.col.first())
        .join(schemas, on="definition", how="left")
        .filter(
            Definitions.input_schema.col.is_not_null()
            | Validated.arguments.col.str.contains(_EMPTY)
        )
        .pipe(run_query)
    )
    names = ["row", Definitions.input_schema.name, Validated.arguments.name]
    at_boundary = np.zeros(rows.height, dtype=np.bool_)
    for same, schema, text in candidates[names].iter_rows():
        if _at_boundary(schema, text):
            at_boundary[same] = True
    return series_from_numpy(at_boundary)


def _at_boundary(schema: str | None, text: str) -> bool:
    value = json_value(text)
    limits, deepest = _limits(schema) if schema is not None else (_ANY, None)
    if deepest is not None and dialects.nesting_depth(value) > deepest:
        limits = _ANY
    try:
        return limits.members(value)
    except RecursionError:
        return False


class _Limits(msgspec.Struct):
    """The limits that a schema sets for a value, and for its members and items."""

    numbers: frozenset[float] = frozenset()
    lengths: frozenset[int] = frozenset()
    items: frozenset[int] = frozenset()
    sizes: frozenset[int] = frozenset()
    properties: dict[str, list["_Limits"]] = msgspec.field(default_factory=dict)
    elements: list["_Limits"] = msgspec.field(default_factory=list)

    def members(self, value: Any) -> bool:
        """Return whether `value` contains a value at a boundary, or its own size is at a limit."""
        kind = value.__class__
        if kind is dict:
            if len(value) in self.sizes:
                return True
            inside = self.properties
            for name, item in value.items():
                if at_boundary(item, inside.get(name, _NOTHING)):
                    return True
        elif kind is list:
            if len(value) in self.items:
                return True
            for item in value:
                if at_boundary(item, self.elements):
                    return True
        return False

    def at_limit(self, value: Any) -> bool:
        """Return whether the value, or a value nested in it, is at a limit that the schema sets."""
        kind = value.__class__
        if kind is str:
            return len(value) in self.lengths
        if kind is int or kind is float:
            return value in self.numbers
        return self.members(value)


_ANY: Final = _Limits()
_NOTHING: Final = [_ANY]


def at_boundary(value: Any, limits: list[_Limits]) -> bool:
    """Return whether a value, or a value nested in it, is empty, null or at one of the limits."""
    # Use a plain loop: the code runs for every argument, and a generator would take twice as long.
    kind = value.__class__
    if value is None or (not value and kind in _CAN_BE_EMPTY):
        return True
    if limits is _NOTHING and kind not in _CONTAINERS:
        return False
    for each in limits or _NOTHING:  # noqa: SIM110
        if each.at_limit(value):
            return True
    return False


_CAN_BE_EMPTY: Final = frozenset((str, list, dict))
_CONTAINERS: Final = frozenset((list, dict))


@functools.lru_cache(maxsize=1024)
def _limits(text: str) -> tuple[_Limits, int | None]:
    """Return the limits that a schema sets, and the maximum depth of values to which they apply.

    A depth of None means that the limits apply to values of any depth.
    """
    try:
        schema = dialects.parse_schema(text)
        # Ignore the schema for values whose validation could take exponential time.
        deepest = cost.max_value_depth(schema) if cost.may_be_costly(text) else None
    except dialects.UnusableSchemaError:
        return _ANY, None
    return _Reader(schema).limits(schema, 0), deepest


class _Reader:
    """Collects the limits that one schema sets; recursive references are followed only once."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.known: dict[int, _Limits] = {}

    def limits(self, schema: Any, depth: int) -> _Limits:
        """Return the limits that a subschema sets, including its branches and references."""
        if not isinstance(schema, dict) or depth > 100:
            return _ANY
        if id(schema) in self.known:
            return self.known[id(schema)]
        found = self.known[id(schema)] = _Limits()
        parts = list(self._parts(schema, depth, set()))
        found.numbers = frozenset(n for part in parts for n in _number_limits(part))
        found.lengths = frozenset(n for part in parts for n in _size_limits(part, "Length"))
        found.items = frozenset(n for part in parts for n in _size_limits(part, "Items"))
        found.sizes = frozenset(n for part in parts for n in _size_limits(part, "Properties"))
        for part in parts:
            inside = part.get("properties")
            for name, each in inside.items() if isinstance(inside, dict) else ():
                found.properties.setdefault(name, []).append(self.limits(each, depth + 1))
            if isinstance(part.get("items"), dict):
                found.elements.append(self.limits(part["items"], depth + 1))
        return found

    def _parts(self, schema: Any, depth: int, seen: set[int]) -> Iterator[dict[str, Any]]:
        """Yield `schema` and all distinct subschemas that apply to the same value."""
        if not isinstance(schema, dict) or depth > 100 or id(schema) in seen:
            return
        seen.add(id(schema))
        yield schema
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref.startswith("#/"):
            yield from self._parts(self._resolved(ref), depth + 1, seen)
        for name in ("anyOf", "oneOf", "allOf"):
            branches = schema.get(name)
            for branch in branches if isinstance(branches, list) else ():
                yield from self._parts(branch, depth + 1, seen)

    def _resolved(self, ref: str) -> Any:
        part = self.root
        for token in ref[2:].split("/"):
            name = token.replace("~1", "/").replace("~0", "~")
            part = part.get(name) if isinstance(part, dict) else None
        return part


def _number_limits(part: dict[str, Any]) -> Iterator[float]:
    low, high = _number(part, "minimum"), _number(part, "maximum")
    if part.get("type") == "integer":
        above, below = _number(part, "exclusiveMinimum"), _number(part, "exclusiveMaximum")
        low = above + 1 if above is not None else low
        high = below - 1 if below is not None else high
    if low != high:
        yield from (each for each in (low, high) if each is not None)


def _size_limits(part: dict[str, Any], what: str) -> Iterator[int]:
    low, high = _number(part, f"min{what}"), _number(part, f"max{what}")
    if low != high:
        yield from (int(each) for each in (low, high) if each is not None and each == int(each))


def _number(part: dict[str, Any], name: str) -> float | None:
    value = part.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None
