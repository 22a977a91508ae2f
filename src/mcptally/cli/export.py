"""`mcptally export`: a store in other people's formats."""

import sys
from pathlib import Path

import click

from mcptally import plural
from mcptally.cli.options import raw
from mcptally.errors import UsageError

FORMATS = ("otlp", "har", "csv", "parquet", "jsonl")


@click.command(name="export")
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--to", type=click.Choice(FORMATS), required=True, help="The format.")
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file; stdout without it.",
)
@click.option(
    "--table",
    default="calls",
    show_default=True,
    metavar="NAME",
    help="Table or standing question; otlp and har hold calls.",
)
@click.option(
    "--where", metavar="SQL", help="Condition on the rows, as in \"verdict = 'business'\"."
)
@raw
def command(
    store: Path, to: str, out: Path | None, table: str, where: str | None, *, raw: bool
) -> None:
    """Write a store in other people's formats.

    Tokens and passwords are replaced by [redacted:NAME], also where the recording holds them.

    \b
    Examples:
      mcptally export store --to csv -o calls.csv
      mcptally export store --to otlp -o spans.jsonl --where "outcome != 'ok'"
      mcptally export store --to parquet --table tool_scores -o scores.parquet
    """
    from mcptally.output.export import export

    if out is None and to == "parquet" and sys.stdout.isatty():
        raise UsageError("parquet is not for a terminal; name a file with -o")
    done = export(store, to=to, out=out or sys.stdout.buffer, table=table, where=where, raw=raw)
    for why, count in done.left_out.items():
        click.echo(f"mcptally: {plural.count(count, 'row')} left out: {why}", err=True)
    if out is not None:
        click.echo(
            f"{plural.count(done.rows - sum(done.left_out.values()), 'row')}: {out}", err=True
        )
