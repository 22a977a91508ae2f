"""The command `mcptally show`: explains a call."""

import dataclasses
import sys
from pathlib import Path

import click

from mcptally.cli.options import RAW, STORE, TABLE_OR_JSON, write_json


@click.command(name="show")
@STORE
@click.argument("call")
@TABLE_OR_JSON
@click.option("--full", is_flag=True, help="Do not cut long payloads.")
@click.option("--seed", is_flag=True, help="Also show how the seed documents judge the call.")
@RAW
def command(store: Path, call: str, form: str, *, full: bool, seed: bool, raw: bool) -> None:
    """Explain a call: request, reply, stderr, and all rules that led to its verdict.

    CALL is a call_id, or the beginning of one. Frames and stderr are read from the transcripts of
    the store, at the paths that were scored. If a transcript is not there, or the store was made
    with --no-payloads, the output says so.

    \b
    Example:
      mcptally show store 33e9d0f0a269721a
    """
    from mcptally.analytics import explanation
    from mcptally.analytics.store import open_store
    from mcptally.redaction.display import clean_lines

    found = open_store(store).show(call, seed=seed)
    found = found if raw else explanation.masked(found)
    if form == "json":
        write_json(dataclasses.asdict(found))
        return
    text = explanation.text(found, limit=sys.maxsize if full else 4000)
    sys.stdout.write(clean_lines(text.rstrip("\n")) + "\n")
