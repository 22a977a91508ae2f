"""The command `mcptally serve`: serves a store over MCP."""

from pathlib import Path

import click

from mcptally.cli.options import (
    ANSWER_SECONDS,
    PATH,
    STORE,
    explain_terminal_on_stdin,
    require_mcp_2,
)


@click.command(name="serve")
@STORE
@click.option(
    "--base",
    type=PATH,
    metavar="STORE",
    help="A store with earlier traffic; adds a tool that lists what has changed since.",
)
@ANSWER_SECONDS
def command(store: Path, *, base: Path | None, seconds: float) -> None:
    """Serve a store over MCP (stdio), with read-only tools for questions, calls and SQL.

    \b
    Examples:
      mcptally serve store
      mcptally serve this-week --base last-week
      npx @modelcontextprotocol/inspector --cli mcptally serve store --method tools/list
    """
    require_mcp_2("serve")
    from mcptally.output.mcp_server import server

    mcp_server = server(store, base=base, seconds=seconds)
    explain_terminal_on_stdin()
    mcp_server.run("stdio")
