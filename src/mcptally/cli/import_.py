"""`mcptally import`: other people's logs become transcripts."""

import sys
from pathlib import Path

import click

from mcptally.errors import Exit


@click.command(name="import")
@click.argument("format_", metavar="FORMAT")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the transcripts; each source has a report beside them.",
)
@click.option("--server", metavar="NAME", help="Label for the server, instead of the source's.")
@click.option(
    "--timezone",
    default="local",
    show_default=True,
    metavar="ZONE",
    help="Zone of times that name none: local, UTC, +02:00, Europe/Berlin.",
)
@click.option(
    "--redact",
    "redaction",
    default="default",
    show_default=True,
    metavar="POLICY",
    help="default, strict or none, and rules switched on or off by name, as in default,+emails.",
)
@click.option("--time", metavar="FIELD", help="jsonrpc: field of the time; dots go into objects.")
@click.option("--direction", metavar="FIELD", help="jsonrpc: field that says which way it went.")
@click.option("--message", metavar="FIELD", help="jsonrpc: field of the message, object or text.")
@click.option("--session", metavar="FIELD", help="jsonrpc: field that tells connections apart.")
@click.option("--c2s", multiple=True, metavar="WORD", help="Word for client to server; repeatable.")
@click.option("--s2c", multiple=True, metavar="WORD", help="Word for server to client; repeatable.")
@click.pass_context
def command(
    ctx: click.Context,
    format_: str,
    paths: tuple[Path, ...],
    out: Path,
    *,
    server: str | None,
    timezone: str,
    redaction: str,
    time: str | None,
    direction: str | None,
    message: str | None,
    session: str | None,
    c2s: tuple[str, ...],
    s2c: tuple[str, ...],
) -> None:
    """Turn other people's logs into transcripts.

    FORMAT is auto, claude-desktop, claude-code, codex, vscode, har, otlp, mcpsnoop, mcphawk or
    jsonrpc. PATHS are files and folders; plain, gzip or zstd. Exit code 1: some lines could not be
    used; the report beside the transcript has their numbers.

    \b
    Examples:
      mcptally import auto ~/Library/Logs/Claude -o traces
      mcptally import vscode mcp.log -o traces --timezone Europe/Berlin
      mcptally import jsonrpc wire.jsonl -o traces --time at --direction way --c2s out --s2c in
    """
    from mcptally import plural
    from mcptally.importers import Envelope, import_logs
    from mcptally.redaction.display import as_message

    def say(text: str) -> None:
        # Names of files and words of logs come from strangers.
        click.echo(f"mcptally: {as_message(text)}", err=True)

    envelope = Envelope(time, direction, message, session, c2s, s2c)
    done = import_logs(
        paths,
        out,
        format=format_,
        redaction=redaction,
        timezone=timezone,
        server=server,
        envelope=envelope,
        progress=_progress if sys.stderr.isatty() else None,
    )
    for path, why in done.passed_over.items():
        say(f"passed over: {path}: {why}")
    for outcome in done.files:
        tally = outcome.tally
        for why, places in tally.unused.items():
            lines = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in places.runs[:5])
            more = "" if len(places.runs) <= 5 else " and more"
            say(
                f"{outcome.file}:{places.runs[0][0]}: not used, {places.count}: {why} "
                f"(lines {lines}{more})"
            )
        for note, count in tally.notes.items():
            say(f"{outcome.file}: {count}: {note}")
        if not outcome.recordings:
            say(f"{outcome.file}: no MCP traffic in it")
    click.echo(
        f"{plural.count(len(done.files), 'file')}: {plural.count(done.recordings, 'recording')}, "
        f"{plural.count(done.events, 'event')}, {plural.count(done.lost, 'line')} not used; "
        f"next: mcptally score {out} -o store"
    )
    if not done.recordings:
        ctx.exit(Exit.UNREADABLE)
    ctx.exit(Exit.FAILED if done.lost else Exit.DONE)


def _progress(path: Path, records: int) -> None:
    from mcptally.redaction.display import as_message

    click.echo(f"\r{as_message(path.name)}: {records:,}", nl=False, err=True)
