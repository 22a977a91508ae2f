"""`mcptally serve`: a store as an MCP server."""

import sys
from pathlib import Path

import click


@click.command(name="serve")
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--base",
    type=click.Path(path_type=Path),
    metavar="STORE",
    help="A store of earlier traffic; adds a tool that says what changed since.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=20.0,
    show_default=True,
    help="How long one answer may take.",
)
def command(store: Path, *, base: Path | None, seconds: float) -> None:
    """Serve a store over MCP (stdio): its questions, calls and SQL as tools, read-only.

    \b
    Examples:
      mcptally serve store
      mcptally serve this-week --base last-week
      npx @modelcontextprotocol/inspector --cli mcptally serve store --method tools/list
    """
    from mcptally.output.mcp_server import server

    made = server(store, base=base, seconds=seconds)
    if sys.stdin.isatty():
        sys.stderr.write("an MCP client belongs at the other end of this pipe; Ctrl-C ends it\n")
    made.run("stdio")
