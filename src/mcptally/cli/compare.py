"""The command `mcptally compare`: compares two stores."""

import sys
from pathlib import Path

import click

from mcptally.cli.options import PATH, RAW, FormatChoice, Gates, gate_options, write_unread
from mcptally.output.formats import ANSWERS
from mcptally.plural import count


@click.command(name="compare")
@click.argument("base", type=PATH)
@click.argument("new", type=PATH)
@click.option(
    "--format", "form", type=FormatChoice(ANSWERS), default="table", help="Output format."
)
@click.option(
    "--metrics", is_flag=True, help="Print one row per metric, with the values of both stores."
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="In a table, also list tools and servers without a change; other formats always do.",
)
@click.option(
    "--min-difference",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.05,
    show_default=True,
    help="Smallest difference in a rate that counts as a change (0.05: 5 percentage points).",
)
@click.option(
    "--min-ratio",
    type=click.FloatRange(1, min_open=True),
    default=1.25,
    show_default=True,
    help="Smallest ratio of latencies or sizes that counts as a change.",
)
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="False discovery rate: the expected share of reported changes that are due to chance.",
)
@gate_options(" for a tool or server: worse, vanished, definition_changed, 'failure_rate > 5%'")
@RAW
@click.pass_context
def command(
    ctx: click.Context,
    /,
    base: Path,
    new: Path,
    *,
    form: str,
    metrics: bool,
    every: bool,
    gates: Gates,
    raw: bool,
    **limits: float,
) -> None:
    """Compare two stores and list what got worse.

    The command compares every tool and server of NEW with BASE: failures, hidden errors, schema
    violations, latency, size and definitions, and lists new, vanished and renamed tools. Tools with
    too little data for a conclusion are counted.

    \b
    Examples:
      mcptally compare last-week this-week
      mcptally compare main branch --fail-on worse --junit report.xml
      mcptally compare main branch --fail-on 'failure_rate > 5%' --fail-on definition_changed
    """
    from mcptally.analytics.answer import masked
    from mcptally.analytics.compare import OMITTED_CHANGES
    from mcptally.analytics.store import open_store
    from mcptally.gates import reviewed
    from mcptally.gates.limits import check_changes
    from mcptally.output import render

    loaded = gates.load(comparing=True)
    before, after = open_store(base), open_store(new)
    for store in (before, after):
        write_unread(store.unread)
    found = before.compare(after, **limits)
    rows = found.metrics if metrics else found.tools
    if form == "table" and not metrics and not every:
        counts = rows.filter(f"change IN {OMITTED_CHANGES}").aggregate(
            "level, change, count(*)", "level, change"
        )
        rows = rows.filter(f"change NOT IN {OMITTED_CHANGES}")
        for level, change, n in sorted(counts.fetchall()):
            sys.stderr.write(f"{count(n, level)} {change.replace('_', ' ')}\n")
    shown = () if metrics else ("level", "server", "tool", "change", "words")
    if form == "table":
        sys.stderr.write("".join(f"{line}\n" for line in reviewed.lines(before, after)))
    limit = render.default_limit(form)
    shown_rows = rows if raw else masked(rows)
    nothing = "No change is significant and large enough."
    render.write(shown_rows, form, shown=shown, limit=limit, empty=nothing)
    if loaded:
        results = check_changes(found, loaded, [after, before])
        gates.report(ctx, [*results, *reviewed.check_change(before, after, loaded)])
