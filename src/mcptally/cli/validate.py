"""The command `mcptally validate`: predicts whether a tool would accept a call."""

import json
import sys
from pathlib import Path

import click

from mcptally.cli.options import STORE
from mcptally.errors import Exit, UsageError, reason
from mcptally.plural import count


@click.command(name="validate")
@STORE
@click.option("--server", required=True, help="Label of the server, or the name that it reports.")
@click.option("--tool", required=True, help="Name of the tool.")
@click.option("--arguments", default="{}", help="Arguments as JSON, or @FILE, or - for stdin.")
def command(store: Path, server: str, tool: str, arguments: str) -> None:
    """Predict whether a tool would accept a call (dry run), without calling the tool.

    The prediction uses the recorded traffic of the store. The command prints {valid, errors,
    warnings} as JSON, and the source of the prediction on stderr. The exit code is 1 if the call is
    invalid.

    \b
    Example:
      mcptally validate store --server files --tool read_file --arguments '{"path": "/data"}'
    """
    from mcptally.analytics import dry_run
    from mcptally.analytics.store import open_store
    from mcptally.redaction.display import escape_controls, mask_text
    from mcptally.wire.nesting import MAX_DEPTH, is_too_deep

    data = arguments.encode(errors="surrogateescape")
    if arguments == "-":
        data = sys.stdin.buffer.read()
    elif arguments.startswith("@"):
        try:
            data = Path(arguments[1:]).read_bytes()
        except OSError as error:
            raise UsageError(f"--arguments {arguments}: {reason(error)}") from error
    if is_too_deep(data):
        raise UsageError(f"--arguments: nested deeper than {count(MAX_DEPTH, 'level')}")
    try:
        parsed = json.loads(data, parse_constant=_reject)
    except ValueError as error:
        raise UsageError(f"--arguments: {reason(error)}") from error
    answer = dry_run.validate(open_store(store), server=server, tool=tool, arguments=parsed)
    sys.stdout.write(escape_controls(mask_text(answer.to_json())) + "\n")
    sys.stderr.write(f"source: {answer.source}\n")
    if not answer.valid:
        sys.exit(Exit.FAILED)


def _reject(constant: str) -> None:
    """Reject NaN and Infinity, which Python's parser accepts."""
    raise ValueError(f"{constant} is not a JSON number")
