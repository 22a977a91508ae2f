"""Determines each call's scenario (what it tests) from a scenario file or from its arguments.

The first true condition decides: an entry in the scenario file matches; the arguments violate the
input schema (`error_case`); a value is empty or at a limit (`boundary`); the combination of
argument names is rare in the whole archive (`edge_case`). All other calls are `happy_path`. To find
rare combinations, each partition counts its `argument_combinations`, and `assign_scenarios`
receives the counts of all partitions.
"""

from typing import Final

import msgspec
import polars as pl

from mcptally import rules
from mcptally.seeds.inspector.boundaries import calls_at_boundary
from mcptally.seeds.inspector.scenario_file import ScenarioEntry
from mcptally.tables.joins import left_join_columns
from mcptally.tables.queries import run_query
from mcptally.tables.stages import ArgumentCombinations, Validated
from mcptally.wire.json_text import decode_or_none


class ScenarioRule(rules.Rule, frozen=True, kw_only=True):
    """A rule row that describes a scenario."""

    scenario: str
    value: float = 0.0


ROWS: Final = {row.scenario: row for row in rules.load(ScenarioRule, "scenario.toml")}


def with_combination(calls: pl.DataFrame) -> pl.DataFrame:
    """Add `combination`, the sorted argument names, to the calls.

    The combination is null for requests that do not call a tool.
    """
    distinct = (
        calls.lazy()
        .filter(Validated.tool.col.is_not_null())
        .select("arguments")
        .drop_nulls()
        .unique()  # not `Expr.unique`, which copies the texts
        .pipe(run_query)
    )
    combinations = [_combination(text) for text in distinct.get_column(Validated.arguments.name)]
    known = distinct.with_columns(combination=pl.Series(combinations, dtype=pl.String))
    return left_join_columns(calls, known, "arguments").with_columns(
        combination=pl.when(Validated.tool.col.is_not_null()).then(
            Validated.combination.col.fill_null("")
        )
    )


def argument_combinations(calls: pl.DataFrame) -> pl.DataFrame:
    """Count the calls for each recording, tool and `combination`, as `ArgumentCombinations`."""
    named = calls.lazy().filter(Validated.tool.col.is_not_null())
    *keys, _ = ArgumentCombinations.columns()
    count = pl.len().cast(ArgumentCombinations.calls.dtype)
    return named.group_by(keys, maintain_order=True).agg(calls=count).pipe(run_query)


def assign_scenarios(
    calls: pl.DataFrame,
    definitions: pl.DataFrame,
    counts: pl.DataFrame,
    entries: tuple[ScenarioEntry, ...] = (),
) -> pl.DataFrame:
    """Return `scenario` and `scenario_source` (`given` or `arguments`), one row per call, in order.

    Args:
        calls: `server`, `tool`, `combination`, `definition`, `arguments`, `input_schema_state`, and
            the columns used by `entries`.
        definitions: `definition` and `input_schema` (JSON text).
        counts: `argument_combinations` of the whole archive, possibly summed over recordings.
        entries: entries of a scenario file, in order.
    """
    inputs = calls[
        ["server", "tool", "combination", "definition", "arguments", "input_schema_state"]
    ]
    is_tool_call = Validated.tool.col.is_not_null()
    boundary = calls_at_boundary(
        inputs.select("definition", pl.when(is_tool_call).then("arguments")), definitions
    )
    matched = [entry.matched(calls) for entry in entries]
    given = calls.select(given=pl.coalesce(pl.lit(None, pl.String), *matched)) if entries else None
    keys = ["server", "tool", "combination"]
    return (
        inputs.lazy()
        .with_columns(
            given=pl.lit(None, pl.String) if given is None else given.to_series(), boundary=boundary
        )
        .join(
            rare_combinations(counts), on=keys, how="left", nulls_equal=True, maintain_order="left"
        )
        .with_columns(
            derived=pl.when(Validated.input_schema_state.col == "invalid")
            .then(pl.lit("error_case"))
            .when("boundary")
            .then(pl.lit("boundary"))
            .when("rare")
            .then(pl.lit("edge_case"))
            .otherwise(pl.lit("happy_path"))
        )
        .select(
            scenario=pl.when(is_tool_call).then(pl.coalesce("given", "derived")),
            scenario_source=pl.when(is_tool_call).then(
                pl.when(pl.col("given").is_not_null())
                .then(pl.lit("given"))
                .otherwise(pl.lit("arguments"))
            ),
        )
        .pipe(run_query)
    )


# --- combinations of argument names ---

_NAMES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _combination(arguments: str) -> str:
    """Return the sorted argument names; arguments that are not a JSON object have none."""
    return ",".join(sorted(decode_or_none(_NAMES, arguments) or ()))


def rare_combinations(counts: pl.DataFrame) -> pl.LazyFrame:
    """Return the combinations of argument names that few calls to the tool have, marked by `rare`.

    Args:
        counts: `argument_combinations` of the whole archive, possibly summed over recordings.
    """
    keys = ["server", "tool", "combination"]
    total = counts.lazy().group_by(keys).agg(ArgumentCombinations.calls.col.sum())
    share = ArgumentCombinations.calls.col / ArgumentCombinations.calls.col.sum().over(
        "server", "tool"
    )
    return total.filter(share <= ROWS["edge_case"].value).select(*keys, rare=pl.lit(value=True))
