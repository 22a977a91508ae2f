"""The command `mcptally wrap`: adds the recorder to the servers in a client's configuration."""

from pathlib import Path
from typing import Any

import click

from mcptally.cli.options import say


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--server", metavar="NAME", help="Only this server; default: all servers.")
@click.option("--undo", is_flag=True, help="Remove the recorder from the configuration.")
@click.option("--dry-run", is_flag=True, help="Show the change without writing it.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the recordings; default: mcptally/traces in the user's data folder.",
)
@click.option("--redact", metavar="POLICY", help="Redaction policy, as in `record`.")
def command(config: Path, *, undo: bool, dry_run: bool, server: str | None, **options: Any) -> None:
    """Add the recorder to the servers in CONFIG, a client's configuration file.

    The command supports the JSON files of Claude Desktop, Claude Code (.mcp.json, ~/.claude.json),
    Cursor, VS Code, Zed, opencode, Crush and Amp. It prints the change and saves a backup next to
    the file. Running the command again changes nothing. Restart the client afterwards. A TOML or
    YAML file (Codex, Goose, LibreChat, Continue) is not changed: the command prints the edit to
    make.

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
        else wrapping.wrap(config, server=server, **options)
    )
    click.echo(as_message(wrapping.redacted_diff(change)), nl=False)
    for sentence in change.messages:
        say(sentence, prefix="mcptally: ")
    if change.after == change.before:
        say("mcptally: nothing to change")
    elif dry_run:
        say("mcptally: dry run, nothing was written")
    else:
        backup = wrapping.apply(change)
        if backup is not None:
            click.echo(f"mcptally: the previous file is saved as {backup}", err=True)
        elif change.restored:
            click.echo(f"mcptally: {change.path} is again identical to the original", err=True)
