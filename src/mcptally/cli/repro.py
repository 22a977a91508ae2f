"""The command `mcptally repro`: writes a script that repeats a recorded call."""

import subprocess
import sys
import tempfile
from pathlib import Path

import click

from mcptally.cli.options import PATH, STORE


@click.command(name="repro")
@STORE
@click.argument("call")
@click.argument("server_command", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("-o", "--out", type=PATH, help="Write the script to this file.")
@click.option(
    "--run", is_flag=True, help="Run the script and print whether the outcome is the same."
)
@click.option(
    "--allow-writes", is_flag=True, help="With --run: also run tools that may change data."
)
@click.option(
    "--record",
    type=PATH,
    metavar="FOLDER",
    help="With --run: record the traffic of the script to this folder.",
)
@click.option(
    "--read-only",
    metavar="TOOL",
    multiple=True,
    help="Treat this tool as read-only, although its definition does not. Can be repeated.",
)
@click.pass_context
def command(
    context: click.Context,
    store: Path,
    call: str,
    server_command: tuple[str, ...],
    *,
    out: Path | None,
    run: bool,
    allow_writes: bool,
    record: Path | None,
    read_only: tuple[str, ...],
) -> None:
    """Write a Python script that repeats a recorded call and compares the outcome.

    CALL is a call_id, or the beginning of one. The script starts the recorded server, or COMMAND,
    repeats earlier calls of the session that may have changed data, makes the call and compares
    outcome and error text. The script needs only the Python SDK, and reads secrets from environment
    variables. Tools that are not annotated as read-only run only with --allow-writes.

    With --record, an option of the script and of --run, the server runs behind `mcptally record`,
    and `mcptally score FOLDER` scores what the script did. With --run, the exit code is 0 if the
    outcome is the same, 1 if the outcome is different, and 2 if the call was not made.

    \b
    Examples:
      mcptally repro store 33e9d0f0a269721a -o repro.py
      mcptally repro store 33e9d0f0a269721a --run --read-only get_current_time
      mcptally repro store 33e9d0f0a269721a --run --record repeated -- uvx mcp-server-time
    """
    from mcptally.analytics.store import open_store
    from mcptally.output.repro import script

    given = [
        name for name, value in (("--allow-writes", allow_writes), ("--record", record)) if value
    ]
    if given and not run:
        raise click.UsageError(f"{given[0]} can only be used with --run; the script has it, too")
    text = script(open_store(store), call, command=server_command, read_only=read_only)
    if out is not None:
        out.write_text(text, encoding="utf-8")
    elif not run:
        sys.stdout.write(text)
    if not run:
        return
    with tempfile.TemporaryDirectory(prefix="mcptally-repro-") as folder:
        path = out or Path(folder) / "repro.py"
        if out is None:
            path.write_text(text, encoding="utf-8")
        options = ["--allow-writes"] if allow_writes else []
        options += [] if record is None else ["--record", str(record)]
        code = subprocess.run([sys.executable, str(path), *options], check=False).returncode
    context.exit(code)
