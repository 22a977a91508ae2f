"""`mcptally report`: one self-contained page."""

import sys
from pathlib import Path

import click

from mcptally.cli.options import of_calls


@click.command(name="report")
@click.argument("store", type=click.Path(path_type=Path))
@click.argument("store2", type=click.Path(path_type=Path), required=False)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    required=True,
    metavar="FILE",
    help="The page to write; - for stdout.",
)
@of_calls
def command(
    store: Path,
    store2: Path | None,
    *,
    out: Path,
    server: str | None,
    tool: str | None,
    since: str | None,
    until: str | None,
    client: str | None,
) -> None:
    """Write one self-contained page about a store, for a browser, a mail or paper.

    What to look at first and why; tools by failure rate with intervals; latency, errors, hidden
    errors, drift, context cost, schema violations; what the data cannot say. The page loads
    nothing, and from every figure there is a command that leads to the calls behind it.

    With two stores, in the order of compare: what changed from STORE to STORE2, and the page is
    about STORE2.

    \b
    Examples:
      mcptally report store -o report.html
      mcptally report main branch -o report.html
      mcptally report store --server git --since 7d -o git.html
    """
    from mcptally.output.html import report

    about, base = (store, None) if store2 is None else (store2, store)
    to_stdout = str(out) == "-"
    page = report(
        about,
        None if to_stdout else out,
        base=base,
        server=server,
        tool=tool,
        since=since,
        until=until,
        client=client,
    )
    if to_stdout:
        sys.stdout.write(page)
    else:
        size = len(page.encode()) / 1e3
        sys.stderr.write(f"{out}: {size:,.0f} kB\n")
