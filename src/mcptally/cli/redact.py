"""`mcptally redact`: apply a redaction policy to recordings that exist."""

from pathlib import Path

import click

from mcptally.errors import Exit
from mcptally.plural import count


@click.command()
@click.argument("archive", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the redacted copies; outside of the archive.",
)
@click.option(
    "--policy",
    "rules",
    default="default",
    show_default=True,
    metavar="POLICY",
    help="default, strict or none, and rules switched on or off by name, as in default,+emails.",
)
@click.pass_context
def command(ctx: click.Context, archive: tuple[Path, ...], out: Path, rules: str) -> None:
    """Copy recordings with their secrets replaced; the source is only read.

    Layout and compression stay, and so does everything that is no secret, to the byte. The policy
    is noted in each recording. Exit code 1: some lines could not be searched, and the copy has a
    line that says so instead, or could not be read, and are missing; each is named.

    \b
    Examples:
      mcptally redact traces -o shareable
      mcptally redact traces -o shareable --policy strict,-home-folders
    """
    from mcptally.redaction.display import as_message
    from mcptally.transcript.redact import redact

    done = redact(archive, out, rules=rules)
    for place in done.dropped:
        click.echo(f"mcptally: not copied: {as_message(place)}", err=True)
    for place in done.withheld:
        click.echo(f"mcptally: text withheld: {as_message(place)}", err=True)
    if done.carried:
        lines = count(done.carried, "line")
        click.echo(f"mcptally: {lines} not an event; redacted as an event", err=True)
    click.echo(
        f"{count(done.files, 'file')}, {count(done.events, 'event')}, "
        f"{count(done.redacted, 'string')} replaced"
    )
    ctx.exit(Exit.FAILED if done.dropped or done.withheld else Exit.DONE)
