"""`mcptally validate`: the validation protocol offline, against a store."""

import json
import sys
from pathlib import Path

import click

from mcptally.errors import Exit, UsageError


@click.command(name="validate")
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--server", required=True, help="Label of the server, or the name it gives itself.")
@click.option("--tool", required=True, help="Name of the tool.")
@click.option("--arguments", default="{}", help="JSON of the arguments, or @FILE, or - for stdin.")
def command(store: Path, server: str, tool: str, arguments: str) -> None:
    """Dry-run a call against what a store knows, without making it.

    Prints {valid, errors, warnings} as JSON; where the answer comes from is said on stderr. The
    exit code is 1 when the call is invalid.

    \b
    Example:
      mcptally validate store --server files --tool read_file --arguments '{"path": "/data"}'
    """
    from mcptally.analytics import dry_run
    from mcptally.analytics.store import open_store
    from mcptally.redaction.display import escaped, hidden
    from mcptally.wire.nesting import MAX_DEPTH, is_too_deep

    data = arguments.encode(errors="surrogateescape")
    if arguments == "-":
        data = sys.stdin.buffer.read()
    elif arguments.startswith("@"):
        try:
            data = Path(arguments[1:]).read_bytes()
        except OSError as error:
            why = error.strerror
            raise UsageError(f"--arguments {arguments}: cannot be read: {why}") from error
    if is_too_deep(data):
        raise UsageError(f"--arguments: nested deeper than {MAX_DEPTH} levels")
    try:
        given = json.loads(data, parse_constant=_refuse)
    except ValueError as error:
        raise UsageError(f"--arguments: is no JSON: {error}") from error
    answer = dry_run.validate(open_store(store), server=server, tool=tool, arguments=given)
    sys.stdout.write(escaped(hidden(answer.to_json())) + "\n")
    sys.stderr.write(f"source: {answer.source}\n")
    if not answer.valid:
        sys.exit(Exit.FAILED)


def _refuse(word: str) -> None:
    """NaN and Infinity, which Python would take for JSON."""
    raise ValueError(f"{word} is no number of JSON")
