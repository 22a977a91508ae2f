"""The command `mcptally explore`: shows a store in a local browser."""

import signal
import sys
import webbrowser
from pathlib import Path
from typing import Any

import click

from mcptally.cli.options import ANSWER_SECONDS, PATH, REVIEWER, REVIEWS, STORE


@click.command(name="explore")
@STORE
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port on 127.0.0.1. Default: a free one.",
)
@ANSWER_SECONDS
@click.option("--base", type=PATH, help="An earlier store; a page shows what has changed since.")
@REVIEWS
@REVIEWER
@click.option("--open", "opens", is_flag=True, help="Open the address in a browser.")
def command(store: Path, *, port: int, opens: bool, **options: Any) -> None:
    """Serve a store to a browser on this machine: servers, tools, errors, calls, sessions, review.

    The command prints the address to open, which contains a random token, and serves until Ctrl-C.
    Only this machine can connect, and only review answers are written. Secrets are masked.

    \b
    Examples:
      mcptally explore store --open
      mcptally explore store --port 8765
      mcptally explore after --base before
    """
    from mcptally.output.explore.listener import listening, redirect_file

    # uvicorn re-raises the signal that stopped it. Turn it into SystemExit, so that the context
    # managers remove their files.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with (
        listening(store, port=port, **options) as (address, run),
        redirect_file(address) as page,
    ):
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        sys.stderr.write("serving until Ctrl-C\n")
        if opens:
            webbrowser.open(page.as_uri())
        run()
