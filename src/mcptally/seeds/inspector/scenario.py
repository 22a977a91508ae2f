"""What a call was a test of: given in a file, or derived from its arguments and their schema.

    given file > schema broken (error_case) > at a limit, empty (boundary) > rare (edge_case) > rest

Rare is a matter of the whole archive, so it takes two steps: each partition counts its
`combinations`, and all counts together are what `scenarios` is told.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import polars as pl

from mcptally import rules
from mcptally.jsonschemas import cost, dialects
from mcptally.seeds.inspector.scenario_file import Given
from mcptally.tables.joins import left_join_columns

COMBINATIONS: Final = pl.Schema(
    {
        "recording": pl.String(),
        "server": pl.String(),
        "tool": pl.String(),
        "combination": pl.String(),
        "calls": pl.UInt32(),
    }
)
"""Calls of a tool by which arguments they were given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScenarioRule(rules.Rule):
    """A row that says when a call is a test of what."""

    scenario: str
    value: float = 0.0


ROWS: Final = {row.scenario: row for row in rules.load(ScenarioRule, "scenario.toml")}


def with_combination(calls: pl.DataFrame) -> pl.DataFrame:
    """Adds `combination`: the names of a tool's arguments, sorted; null for other calls."""
    texts = calls.filter(pl.col("tool").is_not_null()).get_column("arguments").drop_nulls().unique()
    combos = [_combination(names) for names in _names(texts)]
    known = pl.DataFrame({"arguments": texts, "combination": pl.Series(combos, dtype=pl.String)})
    return left_join_columns(calls, known, "arguments").with_columns(
        combination=pl.when(pl.col("tool").is_not_null()).then(pl.col("combination").fill_null(""))
    )


def combinations(calls: pl.DataFrame) -> pl.DataFrame:
    """How many calls of each tool have which `combination`, by recording."""
    named = calls.filter(pl.col("tool").is_not_null())
    return named.group_by(COMBINATIONS.names()[:-1]).agg(calls=pl.len()).cast(COMBINATIONS)


def scenarios(
    calls: pl.DataFrame,
    definitions: pl.DataFrame,
    counted: pl.DataFrame,
    given: tuple[Given, ...] = (),
) -> pl.DataFrame:
    """`scenario` and `scenario_source` (`given` or `arguments`), a row a call, in order.

    Args:
        calls: has `server`, `tool`, `combination`, `definition`, `arguments`,
            `input_schema_state`, and what `given` asks for.
        definitions: `definition` and `input_schema` (JSON text).
        counted: `combinations` of the whole archive, summed or not.
        given: entries of a scenarios file, in order.
    """
    rows = calls.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"),
        *("server", "tool", "combination", "definition", "arguments", "input_schema_state"),
    ).filter(pl.col("tool").is_not_null())
    keys = ["server", "tool", "combination"]
    derived = (
        rows.join(_boundaries(rows, definitions), on=["definition", "arguments"], how="left",
                  nulls_equal=True, maintain_order="left")
        .join(rare(counted), on=keys, how="left", nulls_equal=True, maintain_order="left")
        .select(
            "row",
            derived=pl.when(pl.col("input_schema_state") == "invalid")
            .then(pl.lit("error_case"))
            .when("boundary")
            .then(pl.lit("boundary"))
            .when("rare")
            .then(pl.lit("edge_case"))
            .otherwise(pl.lit("happy_path")),
        )
    )  # fmt: skip
    told = calls.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"),
        told=pl.coalesce(pl.lit(None, pl.String), *(each.matched(calls) for each in given)),
    )
    found = told.join(derived, on="row", how="left", maintain_order="left")
    is_call = pl.col("derived").is_not_null()
    return found.select(
        scenario=pl.when(is_call).then(pl.coalesce("told", "derived")),
        scenario_source=pl.when(is_call).then(
            pl.when(pl.col("told").is_not_null())
            .then(pl.lit("given"))
            .otherwise(pl.lit("arguments"))
        ),
    )


# ------------------------------------------------------------------------- rare combinations

# JSON text holds no line break, so that one native call takes a batch of it apart.
_NAMES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _combination(names: Iterable[str]) -> str:
    return ",".join(sorted(names))


def _names(texts: pl.Series) -> Iterator[Iterable[str]]:
    for start in range(0, len(texts), 512):
        batch = texts.slice(start, 512)
        joined: bytes = batch.str.join("\n").cast(pl.Binary).item()
        try:
            yield from _NAMES.decode_lines(joined)
        except (msgspec.DecodeError, RecursionError):
            yield from map(_names_of, batch)


def _names_of(text: str) -> Iterable[str]:
    try:
        return _NAMES.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return ()  # arguments that are no object have no names


def rare(counted: pl.DataFrame) -> pl.DataFrame:
    """The combinations that are rare among the calls of their tool, and `rare`: true."""
    keys = ["server", "tool", "combination"]
    total = counted.group_by(keys).agg(pl.col("calls").sum())
    share = pl.col("calls") / pl.col("calls").sum().over("server", "tool")
    return total.filter(share <= ROWS["edge_case"].value).select(*keys, rare=pl.lit(value=True))


# --------------------------------------------------------------------------------- boundaries

_EMPTY: Final = r'""|\[\s*\]|\{\s*\}|null'
"""Where a value can be empty or null; a string may say so, too, which is checked later."""


def _boundaries(rows: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """The (definition, arguments) in which a value is at a boundary.

    Only arguments of tools that declare a limit, and such as may hold something empty, are
    taken apart, each distinct value once.
    """
    schemas = (
        definitions.select("definition", "input_schema")
        .drop_nulls()
        .unique("definition")
        .join(rows.select("definition").unique(), on="definition", how="semi")
    )
    limited = schemas.with_columns(
        limited=pl.Series([_has_limits(s) for s in schemas["input_schema"]], dtype=pl.Boolean)
    ).filter("limited")
    asked = (
        rows.select("definition", "arguments")
        .filter(pl.col("arguments").is_not_null())
        .unique()
        .join(limited, on="definition", how="left")
        .filter(pl.col("limited").is_not_null() | pl.col("arguments").str.contains(_EMPTY))
    )
    found = [
        _at_boundary(schema, text)
        for schema, text in asked.select("input_schema", "arguments").iter_rows()
    ]
    return (
        asked.filter(pl.Series(found, dtype=pl.Boolean))
        .select("definition", "arguments", boundary=pl.lit(value=True))
    )  # fmt: skip


def _at_boundary(schema: str | None, text: str) -> bool:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    limits, deepest = _limits(schema) if schema is not None else (_ANY, None)
    if deepest is not None and dialects.depth(value) > deepest:
        limits = _ANY
    try:
        return limits.members(value)
    except RecursionError:
        return False


_LIMITS: Final = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
)


def _has_limits(text: str) -> bool:
    return any(f'"{name}"' in text for name in _LIMITS)


@dataclasses.dataclass
class _Limits:
    """The limits that a schema sets for a value, and for what is inside."""

    numbers: frozenset[float] = frozenset()
    lengths: frozenset[int] = frozenset()
    items: frozenset[int] = frozenset()
    sizes: frozenset[int] = frozenset()
    properties: dict[str, list["_Limits"]] = dataclasses.field(default_factory=dict)
    elements: list["_Limits"] = dataclasses.field(default_factory=list)

    def members(self, value: Any) -> bool:
        """Whether anything inside is at a boundary, or the number of it."""
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
        """Whether the value itself, or anything inside, is at a boundary."""
        kind = value.__class__
        if kind is str:
            return len(value) in self.lengths
        if kind is int or kind is float:
            return value in self.numbers
        return self.members(value)


_ANY: Final = _Limits()
_NOTHING: Final = [_ANY]


def at_boundary(value: Any, limits: list[_Limits]) -> bool:
    """Whether a value is empty, null, or at one of the limits, or holds something that is."""
    # Plain loops: this is asked of every argument, and a generator costs as much as the answer.
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
    """The limits that a schema sets, and how deep a value may be to be held against them."""
    try:
        schema = dialects.read(text)
        # Schemas come from strangers: one whose evaluation may explode sets no limits.
        deepest = cost.deepest_value(schema) if cost.may_explode(text) else None
    except dialects.UnusableError:
        return _ANY, None
    return _Reader(schema).limits(schema, 0), deepest


class _Reader:
    """Reads limits out of one schema; a reference to what is being read ends there."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.known: dict[int, _Limits] = {}

    def limits(self, schema: Any, depth: int) -> _Limits:
        """The limits of a part of the schema, with those of its branches and references."""
        if not isinstance(schema, dict) or depth > 100:
            return _ANY
        if id(schema) in self.known:
            return self.known[id(schema)]
        found = self.known[id(schema)] = _Limits()
        parts = list(self._parts(schema, depth, set()))
        found.numbers = frozenset(n for part in parts for n in _numbers(part))
        found.lengths = frozenset(n for part in parts for n in _pair(part, "Length"))
        found.items = frozenset(n for part in parts for n in _pair(part, "Items"))
        found.sizes = frozenset(n for part in parts for n in _pair(part, "Properties"))
        for part in parts:
            inside = part.get("properties")
            for name, each in inside.items() if isinstance(inside, dict) else ():
                found.properties.setdefault(name, []).append(self.limits(each, depth + 1))
            if isinstance(part.get("items"), dict):
                found.elements.append(self.limits(part["items"], depth + 1))
        return found

    def _parts(self, schema: Any, depth: int, seen: set[int]) -> Iterator[dict[str, Any]]:
        """What holds for the same value as a part of the schema, each once."""
        if not isinstance(schema, dict) or depth > 100 or id(schema) in seen:
            return
        seen.add(id(schema))
        yield schema
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref.startswith("#/"):
            yield from self._parts(self._pointed(ref), depth + 1, seen)
        for name in ("anyOf", "oneOf", "allOf"):
            branches = schema.get(name)
            for branch in branches if isinstance(branches, list) else ():
                yield from self._parts(branch, depth + 1, seen)

    def _pointed(self, ref: str) -> Any:
        part = self.root
        for token in ref[2:].split("/"):
            name = token.replace("~1", "/").replace("~0", "~")
            part = part.get(name) if isinstance(part, dict) else None
        return part


def _numbers(part: dict[str, Any]) -> Iterator[float]:
    low, high = _number(part, "minimum"), _number(part, "maximum")
    if part.get("type") == "integer":
        above, below = _number(part, "exclusiveMinimum"), _number(part, "exclusiveMaximum")
        low = above + 1 if above is not None else low
        high = below - 1 if below is not None else high
    if low != high:
        yield from (each for each in (low, high) if each is not None)


def _pair(part: dict[str, Any], what: str) -> Iterator[int]:
    low, high = _number(part, f"min{what}"), _number(part, f"max{what}")
    if low != high:
        yield from (int(each) for each in (low, high) if each is not None and each == int(each))


def _number(part: dict[str, Any], name: str) -> float | None:
    value = part.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None
