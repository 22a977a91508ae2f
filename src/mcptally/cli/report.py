"""The command `mcptally report`: writes an HTML report."""

import sys
from pathlib import Path

import click

from mcptally.cli.options import PATH, STORE, call_filters, write_unread


@click.command(name="report")
@STORE
@click.argument("store2", type=PATH, required=False)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    required=True,
    metavar="FILE",
    help="The file to write; - for stdout.",
)
@call_filters
def command(store: Path, store2: Path | None, *, out: Path, **filters: str | None) -> None:
    """Write an HTML report about a store: one self-contained file.

    The report lists the most important problems, tools by failure rate with intervals, latency,
    errors, hidden errors, changed definitions, context cost, schema violations, and the limits of
    the data. It contains whole calls, with secrets masked: request, reply and what decided the
    verdict, 2 MB at most. The page loads nothing. Commands next to the numbers print all calls
    behind a number.

    With two stores, in the same order as for compare, the report is about STORE2 and starts with
    what changed since STORE.

    \b
    Examples:
      mcptally report store -o report.html
      mcptally report main branch -o report.html
      mcptally report store --server git --since 7d -o git.html
    """
    from mcptally.analytics.store import open_store
    from mcptally.output.html import report

    for each in (store, store2):
        write_unread(open_store(each).unread if each is not None else None)
    reported, base = (store, None) if store2 is None else (store2, store)
    to_stdout = str(out) == "-"
    page = report(reported, None if to_stdout else out, base=base, **filters)
    if to_stdout:
        sys.stdout.buffer.write(page.encode())
    else:
        size = len(page.encode()) / 1e3
        sys.stderr.write(f"{out}: {size:,.0f} kB\n")
