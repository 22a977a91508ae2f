"""The command `mcptally mock`: answers MCP requests from a recording."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcptally.cli.options import PATH, explain_terminal_on_stdin, require_mcp_2

if TYPE_CHECKING:
    from mcptally.output.mock import Failures


@click.command(name="mock")
@click.argument("archive", nargs=-1, required=True, type=PATH)
@click.option("--server", metavar="NAME", help="Answer as this server, by its label.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Serve Streamable HTTP at http://HOST:PORT/mcp instead of stdio. Port 0: a free one.",
)
@click.option("--delays", is_flag=True, help="Delay each answer by the recorded time.")
@click.option(
    "--failures",
    type=click.Choice(["replies", "all", "none"]),
    default="replies",
    show_default=True,
    help="Reproduce failures that got a reply, these and missing replies, or no failures.",
)
def command(
    archive: tuple[Path, ...],
    *,
    server: str | None,
    listen: str | None,
    delays: bool,
    failures: "Failures",
) -> None:
    """Run an MCP server that answers from a recording, for tests of clients and agents.

    ARCHIVE is one or more transcript files, folders or patterns, or a store. A call to a recorded
    tool with the recorded arguments gets the recorded reply. If the same call was recorded several
    times, each repetition gets the next reply. A request that is not recorded gets an error that
    names the nearest recorded call.

    \b
    Examples:
      mcptally mock traces --server github
      mcptally mock store --server github --listen 127.0.0.1:8000 --delays
      npx @modelcontextprotocol/inspector --cli mcptally mock traces --method tools/list
    """
    require_mcp_2("mock")
    from mcptally.output import mock

    recording = mock.read(archive, server=server, failures=failures)
    made = mock.mock_server(recording, delays=delays)
    if listen is None:
        explain_terminal_on_stdin()
        mock.run_stdio(made)
        return
    from mcptally.record.http.server import bind

    sockets = bind(listen)
    host, port = sockets[0].getsockname()[:2]
    sys.stdout.write(f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp\n")
    sys.stdout.flush()
    sys.stderr.write("serving until Ctrl-C\n")
    mock.run_http(made, sockets, host=host)
