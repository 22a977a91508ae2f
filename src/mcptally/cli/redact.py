"""The command `mcptally redact`: copies recordings with their secrets replaced."""

from pathlib import Path

import click

from mcptally.cli.options import PATH, say
from mcptally.errors import Exit
from mcptally.plural import count


@click.command()
@click.argument("archive", nargs=-1, required=True, type=PATH)
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the redacted copies; it must be outside the archive.",
)
@click.option(
    "--policy",
    "rules",
    default="default",
    show_default=True,
    metavar="POLICY",
    help="default, strict or none, plus rules to add or remove, as in default,+emails.",
)
@click.pass_context
def command(ctx: click.Context, archive: tuple[Path, ...], out: Path, rules: str) -> None:
    """Copy recordings with their secrets replaced; the originals are not changed.

    Everything else stays the same to the byte, including folders and compression. Each copy states
    the policy. The exit code is 1 if some lines could not be searched or read. In the copy, a line
    that could not be searched is replaced by a line that says so, and a line that could not be read
    is missing. Each such line is reported.

    \b
    Examples:
      mcptally redact traces -o shareable
      mcptally redact traces -o shareable --policy strict,-home-folders
    """
    from mcptally.transcript.redact import redact

    done = redact(archive, out, rules=rules)
    for place in done.dropped:
        say(place, prefix="mcptally: not copied: ")
    for place in done.withheld:
        say(place, prefix="mcptally: text withheld: ")
    if done.carried:
        say(f"mcptally: {count(done.carried, 'line')} not valid as events, but redacted too")
    click.echo(
        f"{count(done.files, 'file')}, {count(done.events, 'event')}, "
        f"{count(done.redacted, 'string')} replaced"
    )
    ctx.exit(Exit.FAILED if done.dropped or done.withheld else Exit.DONE)
