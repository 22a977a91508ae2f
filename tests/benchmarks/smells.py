"""Measure in a store whether smells of tool definitions go together with refused arguments.

    python -m tests.benchmarks smells STORE [--resamples 2000]

Prints two tables in Markdown: how many tools have each smell, and its effect. The effect of a smell
of arguments compares arguments of the same tool that are alike required or optional; that of a
smell of descriptions compares tools of the same server. Two shares of calls are compared: those
that the schema refuses because of the argument or tool, and those that the server refuses although
the schema allows them. The strata are pooled as by Mantel and Haenszel. The interval is a
percentile bootstrap over packages: servers that report the same name, run in several ways, are one.
"""

import argparse
import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

import mcptally as mt
from mcptally.protocol.definition_arguments import arguments_of
from mcptally.rules.findings import finding_rule

ARGUMENT_RULES = (
    *("parameter_undescribed", "parameter_repeats_name", "format_undocumented"),
    *("limits_unstated", "default_unstated", "enum_in_prose", "example_invalid"),
)
TOOL_RULES = (*("description_missing", "description_repeats_name", "overlap", "description_long"),)
FEWEST_PACKAGES = 5
"""Packages that need both kinds of arguments before an interval is printed."""


class Effect(NamedTuple):
    """The difference that a smell makes to a share of calls."""

    packages: int
    smelly: int
    others: int
    share_smelly: float
    share_others: float
    difference: float
    low: float
    high: float


def definitions(store: mt.Store) -> pl.DataFrame:
    """One row per server and definition that was called: its package and calls."""
    return store.sql("""
        SELECT t.server, coalesce(any_value(t.server_name), t.server) AS package, t.definition,
            any_value(t.tool) AS tool, any_value(t.description) AS description,
            any_value(t.input_schema) AS input_schema, any_value(c.calls)::DOUBLE AS calls
        FROM tools t
        LEFT JOIN (
            SELECT server, definition, count(*) AS calls
            FROM calls
            WHERE method = 'tools/call' AND dir = 'c2s' AND outcome <> 'cancelled'
            GROUP BY server, definition
        ) c ON c.server = t.server AND c.definition = t.definition
        GROUP BY t.server, t.definition
    """).pl()


def refusals(store: mt.Store) -> pl.DataFrame:
    """Refused calls per server, definition, argument, and whether the schema refuses them."""
    return store.sql("""
        SELECT
            server, definition, argument, invalid,
            sum(list_sum(list_transform(sessions, lambda s: s.n)))::DOUBLE AS refused
        FROM _argument_refusals
        GROUP BY server, definition, argument, invalid
    """).pl()


def smells(store: mt.Store) -> pl.DataFrame:
    """Rule, server, definition and argument of each smell."""
    return (
        store.sql("""
        SELECT DISTINCT server, definition, argument, unnest(rules) AS rule FROM _smells
    """)
        .pl()
        .with_columns(pl.col("rule").str.strip_prefix("definition."))
    )


def eligible(rule: str, arguments: pl.DataFrame) -> pl.DataFrame:
    """The arguments that could have a smell: the others are no comparison."""
    kinds = pl.col("kinds")
    text = (kinds.list.contains("string")) & (kinds.list.len() == 1)
    number = (kinds.list.len() > 0) & (
        kinds.list.set_difference(["integer", "number"]).list.len() == 0
    )
    conditions = {
        "parameter_undescribed": pl.lit(value=True),
        "parameter_repeats_name": pl.col("described"),
        "format_undocumented": text
        & pl.col("words").str.contains(finding_rule("definition.format_undocumented").matches[0]),
        "limits_unstated": number,
        "default_unstated": ~pl.col("required"),
        "enum_in_prose": text & (pl.col("smelly") | pl.col("enumerated")),
        "example_invalid": pl.col("defaulted"),
    }
    return arguments.filter(conditions[rule])


def _has_enum(schema: str, name: str) -> bool:
    return '"enum"' in json.dumps(json.loads(schema)["properties"].get(name))


def effect(rows: pl.DataFrame, stratum: list[str], resamples: int) -> Effect:
    """The pooled difference of shares between smelly rows and others of the same stratum.

    Args:
        rows: `package`, `smelly`, `calls` and `refused`, and the columns of `stratum`.
    """
    both = (
        rows.group_by(*stratum, "package")
        .agg(
            n1=pl.col("calls").filter("smelly").sum(),
            y1=pl.col("refused").filter("smelly").sum(),
            n0=pl.col("calls").filter(~pl.col("smelly")).sum(),
            y0=pl.col("refused").filter(~pl.col("smelly")).sum(),
            smelly=pl.col("smelly").sum(),
            others=(~pl.col("smelly")).sum(),
        )
        .filter(pl.col("n1") > 0, pl.col("n0") > 0)
        .with_columns(
            weight=pl.col("n1") * pl.col("n0") / (pl.col("n1") + pl.col("n0")),
        )
        .with_columns(
            weighed1=pl.col("weight") * pl.col("y1") / pl.col("n1"),
            weighed0=pl.col("weight") * pl.col("y0") / pl.col("n0"),
        )
        .group_by("package")
        .agg(pl.col("weight", "weighed1", "weighed0", "smelly", "others").sum())
        .sort("package")
    )
    packages = both.height
    if not packages:
        return Effect(0, 0, 0, *[np.nan] * 5)
    w, a, b = (both[name].to_numpy() for name in ("weight", "weighed1", "weighed0"))
    low = high = np.nan
    if packages >= FEWEST_PACKAGES:
        random = np.random.default_rng(1)
        drawn = random.integers(0, packages, (resamples, packages))
        differences = (a - b)[drawn].sum(1) / w[drawn].sum(1)
        low, high = np.quantile(differences, (0.025, 0.975))
    total = w.sum()
    return Effect(
        packages,
        both["smelly"].sum(),
        both["others"].sum(),
        a.sum() / total,
        b.sum() / total,
        (a - b).sum() / total,
        float(low),
        float(high),
    )


def effects(store: mt.Store, resamples: int) -> Iterator[tuple[str, str, Effect]]:
    """Yield rule, kind of refusal and effect."""
    known, refused, smelling = definitions(store), refusals(store), smells(store)
    called = known.filter(pl.col("calls") > 0)
    arguments = (
        arguments_of(called.unique("definition", maintain_order=True))
        .join(
            called.select("server", "package", "definition", "calls", "input_schema"),
            on="definition",
        )
        .rename({"name": "argument"})
    )
    names = arguments.select("input_schema", "argument").iter_rows()
    arguments = arguments.with_columns(
        enumerated=pl.Series([_has_enum(*row) for row in names], dtype=pl.Boolean)
    )
    for rule in (*ARGUMENT_RULES, *TOOL_RULES):
        about_arguments = rule in ARGUMENT_RULES
        rows = arguments if about_arguments else called
        key = ["server", "definition", *(["argument"] if about_arguments else [])]
        mine = smelling.filter(pl.col("rule") == rule).select(key).unique()
        rows = rows.join(mine.with_columns(smelly=pl.lit(value=True)), on=key, how="left")
        rows = rows.with_columns(pl.col("smelly").fill_null(value=False))
        if about_arguments:
            rows = eligible(rule, rows)
        for invalid in (True, False):
            counts = (
                refused.filter(pl.col("invalid") == invalid)
                .group_by(key)
                .agg(pl.col("refused").sum())
            )
            counted = rows.join(counts, on=key, how="left").with_columns(
                pl.col("refused").fill_null(0)
            )
            stratum = ["server", "definition", "required"] if about_arguments else ["server"]
            kind = "by the schema" if invalid else "by the server"
            yield rule, kind, effect(counted, stratum, resamples)


def prevalence(store: mt.Store) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield rule, definitions with it, all definitions, packages with it and all packages."""
    known, smelling = definitions(store), smells(store)
    distinct = known.unique("definition", maintain_order=True)
    every, packages = distinct.height, distinct["package"].n_unique()
    for rule in (*ARGUMENT_RULES, "required_in_prose", "optional_required", *TOOL_RULES):
        mine = distinct.join(smelling.filter(pl.col("rule") == rule), on="definition", how="semi")
        yield rule, mine.height, every, mine["package"].n_unique(), packages
    mine = distinct.join(smelling, on="definition", how="semi")
    yield "any", mine.height, every, mine["package"].n_unique(), packages


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("--resamples", type=int, default=2000)
    args = parser.parse_args()
    store = mt.open_store(args.store)
    print("| smell | definitions | share | packages |\n|---|---:|---:|---:|")
    for rule, count, every, packages, all_packages in prevalence(store):
        share = f"{count} of {every} | {count / every:.0%}"
        print(f"| `{rule}` | {share} | {packages} of {all_packages} |")
    print(
        "\n| smell | refused | packages | with it | without it | share with | share without |"
        " difference, points | 95% interval |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---|")
    for rule, kind, e in effects(store, args.resamples):
        if not e.packages:
            print(f"| `{rule}` | {kind} | 0 | | | | | | no comparison |")
            continue
        interval = (
            "too few packages" if np.isnan(e.low) else f"{100 * e.low:+.1f} to {100 * e.high:+.1f}"
        )
        print(
            f"| `{rule}` | {kind} | {e.packages} | {e.smelly} | {e.others} | {e.share_smelly:.1%} |"
            f" {e.share_others:.1%} | {100 * e.difference:+.1f} | {interval} |"
        )


if __name__ == "__main__":
    main()
