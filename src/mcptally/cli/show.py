"""`mcptally show`: one call explained."""

import dataclasses
import json
import sys
from pathlib import Path

import click

from mcptally.cli.options import raw


@click.command(name="show")
@click.argument("store", type=click.Path(path_type=Path))
@click.argument("call")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option("--full", is_flag=True, help="Show payloads whole, however long.")
@raw
def command(store: Path, call: str, form: str, *, full: bool, raw: bool) -> None:
    """Explain one call: request, reply, and every rule and factor that decided, in words.

    CALL is a call_id, or the beginning of one.

    \b
    Example:
      mcptally show store 33e9d0f0a269721a
    """
    from mcptally.analytics import explain
    from mcptally.analytics.store import open_store
    from mcptally.redaction.display import clean_lines, escaped

    found = explain.explain(open_store(store), call)
    found = found if raw else explain.masked(found)
    if form == "json":
        plain = json.dumps(dataclasses.asdict(found), default=str, indent=1, ensure_ascii=False)
        sys.stdout.write(escaped(plain) + "\n")
        return
    words = explain.text(found, limit=sys.maxsize if full else 4000)
    sys.stdout.write(clean_lines(words.rstrip("\n")) + "\n")
