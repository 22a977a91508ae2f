"""The command `mcptally export`: exports a store in other formats."""

import sys
from pathlib import Path

import click

from mcptally.cli.options import RAW, STORE, FormatChoice
from mcptally.errors import UsageError
from mcptally.output.formats import EXPORTS
from mcptally.plural import count


@click.command(name="export")
@STORE
@click.option("--to", type=FormatChoice(EXPORTS), required=True, help="The format.")
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="The file to write; default, and -: stdout.",
)
@click.option(
    "--table",
    default="calls",
    show_default=True,
    metavar="NAME",
    help="Table or predefined question; otlp, otlp-metrics and har can only contain calls.",
)
@click.option(
    "--where", metavar="SQL", help="Condition that selects rows, as in \"verdict = 'business'\"."
)
@RAW
def command(
    store: Path, to: str, out: Path | None, table: str, where: str | None, *, raw: bool
) -> None:
    """Export a table of a store as OTLP, HAR, CSV, Parquet, JSON, JSON Lines or Markdown.

    Tokens and passwords are replaced by [redacted:NAME], even if the recording contains them.

    \b
    Examples:
      mcptally export store --to csv -o calls.csv
      mcptally export store --to otlp -o spans.jsonl --where "outcome != 'ok'"
      mcptally export store --to parquet --table tool_scores -o scores.parquet
    """
    from mcptally.output.export import export

    if str(out) == "-":
        out = None
    if out is None and to == "parquet" and sys.stdout.isatty():
        raise UsageError("parquet cannot be printed to a terminal; give a file with -o")
    done = export(store, to=to, out=out or sys.stdout.buffer, table=table, where=where, raw=raw)
    for note in done.notes:
        click.echo(f"mcptally: {note}", err=True)
    if out is not None:
        click.echo(f"{count(done.rows - sum(done.left_out.values()), 'row')}: {out}", err=True)
