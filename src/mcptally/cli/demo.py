"""The command `mcptally demo`: records and scores example servers that fail in known ways."""

import sys
import tempfile
from pathlib import Path

import click


@click.command(name="demo")
@click.option("--out", metavar="DIR", help="Folder for the recordings. Default: a temporary one.")
@click.option("--open", "opens", is_flag=True, help="Open the report in a browser.")
def command(out: str | None, *, opens: bool) -> None:
    """Record and score example servers that fail in known ways.

    The command starts two small servers behind the recorder, calls their tools in 12 sessions, and
    prints what `mcptally PATH` finds in the recordings, then what is really wrong with each tool.
    It takes about ten seconds and uses no network.

    \b
    Examples:
      mcptally demo
      mcptally demo --out demo-traces --open
    """
    from mcptally.cli.overview import command as overview
    from mcptally.demo import client, servers

    folder = Path(out or tempfile.mkdtemp(prefix="mcptally-demo-"))
    sessions = client.SESSIONS * len(servers.VERSIONS)
    sys.stderr.write(f"recording {sessions} sessions in {folder}\n")
    client.record(folder)
    click.get_current_context().invoke(overview, paths=(str(folder),), opens=opens, lists=False)
    truth = {name: tool.truth for name, tool in servers.TOOLS.items()}
    truth[servers.NEWSLETTER] = servers.NEVER_STARTS
    lines = [f"  {name}: {wrong}\n" for name, wrong in truth.items()]
    sys.stdout.write("".join(["\nwhat is really wrong:\n", *lines]))
