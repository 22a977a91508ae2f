"""`mcptally compare`: what got worse between two stores."""

import sys
from pathlib import Path

import click

from mcptally.cli.options import of_gates, raw, require_gates, write_gate_reports
from mcptally.cli.query import FORMATS

_QUIET = ("unclear", "unchanged", "too_little_data", "only_in_base", "only_in_new")


@click.command(name="compare")
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="table", help="How to print rows."
)
@click.option("--metrics", is_flag=True, help="A row a metric, with both values, instead of words.")
@click.option("--all", "every", is_flag=True, help="In a table also what shows no change.")
@click.option(
    "--min-difference",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.05,
    show_default=True,
    help="A share that moved by less is no change (0.05: five points).",
)
@click.option(
    "--min-ratio",
    type=click.FloatRange(1, min_open=True),
    default=1.25,
    show_default=True,
    help="The same for latency and size.",
)
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="False discovery rate: the share of the changes called one that may be chance.",
)
@click.option(
    "--fail-on",
    multiple=True,
    metavar="GATE",
    help="Exit with 1 where this holds: worse, vanished, definition_changed, "
    "'failure_rate > 5%', or a TOML file of gates. May be repeated.",
)
@of_gates
@raw
@click.pass_context
def command(
    ctx: click.Context,
    base: Path,
    new: Path,
    *,
    form: str,
    metrics: bool,
    every: bool,
    min_difference: float,
    min_ratio: float,
    alpha: float,
    fail_on: tuple[str, ...],
    junit: Path | None,
    sarif: Path | None,
    raw: bool,
) -> None:
    """Say what got worse between two stores.

    Every tool and server of BASE against NEW: failures, hidden errors, schema violations, latency,
    size, definitions; new, vanished and renamed tools. What the data cannot say is said, too.

    \b
    Examples:
      mcptally compare last-week this-week
      mcptally compare main branch --fail-on worse --junit report.xml
      mcptally compare main branch --fail-on 'failure_rate > 5%' --fail-on definition_changed
    """
    from mcptally.analytics.store import open_store
    from mcptally.gates import limits as gates
    from mcptally.output import render

    require_gates(fail_on, junit, sarif)
    limits = gates.load(fail_on)
    found = open_store(base).compare(
        open_store(new), min_difference=min_difference, min_ratio=min_ratio, alpha=alpha
    )
    rows = found.metrics if metrics else found.tools
    if form == "table" and not metrics and not every:
        quiet = ", ".join(f"'{name}'" for name in _QUIET)
        counts = rows.filter(f"change IN ({quiet})").aggregate(
            "level, change, count(*)", "level, change"
        )
        rows = rows.filter(f"change NOT IN ({quiet})")
        for level, change, count in sorted(counts.fetchall()):
            sys.stderr.write(f"{count:,} {level}s {change.replace('_', ' ')}\n")
    shown = () if metrics else ("level", "server", "tool", "change", "words")
    limit = render.default_limit(form)  # type: ignore[arg-type]  # click checked it
    render.write(rows, form, shown=shown, limit=limit, raw=raw)  # type: ignore[arg-type]
    if fail_on:
        write_gate_reports(ctx, gates.check_changes(found, limits), junit, sarif)
