"""`mcptally wrap`: put the recorder before the servers of a client's configuration."""

from pathlib import Path

import click


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--server", metavar="NAME", help="Only this server; default: all of them.")
@click.option("--undo", is_flag=True, help="Take the recorder out again.")
@click.option("--dry-run", is_flag=True, help="Show the change and write nothing.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the recordings; default: mcptally/traces where this platform keeps data.",
)
@click.option("--redact", metavar="POLICY", help="What the recorder hides, as in `record`.")
def command(
    config: Path,
    server: str | None,
    undo: bool,
    dry_run: bool,
    out: Path | None,
    redact: str | None,
) -> None:
    """Put the recorder before the servers of CONFIG, a client's configuration file.

    Knows the files of Claude Desktop, Claude Code (.mcp.json, ~/.claude.json), Cursor and VS Code.
    Shows what changes, keeps the file as it was beside it, and changes nothing when run again.
    Restart the client afterwards.

    \b
    Examples:
      mcptally wrap .mcp.json --dry-run
      mcptally wrap ~/.cursor/mcp.json --server github
      mcptally wrap .mcp.json --undo
    """
    from mcptally.record.config import wrap as wrapping
    from mcptally.redaction.display import as_message

    change = (
        wrapping.unwrap(config, server=server)
        if undo
        else wrapping.wrap(config, server=server, out=out, redact=redact)
    )
    click.echo(as_message(wrapping.shown(change)), nl=False)
    for sentence in change.messages:
        click.echo(f"mcptally: {as_message(sentence)}", err=True)
    if change.after == change.before:
        click.echo("mcptally: nothing to change", err=True)
    elif dry_run:
        click.echo("mcptally: dry run, nothing was written", err=True)
    else:
        kept = wrapping.apply(change)
        if kept is not None:
            click.echo(f"mcptally: the file as it was is kept in {kept}", err=True)
        elif change.restored:
            click.echo(f"mcptally: {change.path} is as it was, to the byte", err=True)
