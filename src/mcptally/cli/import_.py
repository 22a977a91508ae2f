"""The command `mcptally import`: converts other programs' logs to transcripts."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcptally.cli.options import Decorator, say
from mcptally.errors import Exit, as_argument
from mcptally.plural import count

if TYPE_CHECKING:
    from mcptally.importers import Imported


def _direction(name: str, way: str) -> Decorator:
    words = f"jsonrpc: value of the direction for {way}. Can be repeated."
    return click.option(name, multiple=True, metavar="WORD", help=words)


@click.command(name="import")
@click.argument("format_", metavar="FORMAT")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the transcripts, and for a report about each source.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="otlp: receive spans from exporters at this address instead of reading PATHS. Needs "
    "mcptally[otlp].",
)
@click.option("--server", metavar="NAME", help="Label of the server; default: from the source.")
@click.option(
    "--timezone",
    default="local",
    show_default=True,
    metavar="ZONE",
    help="Time zone of times without one: local, UTC, +02:00, Europe/Berlin.",
)
@click.option(
    "--redact",
    "redaction",
    default="default",
    show_default=True,
    metavar="POLICY",
    help="Redaction policy: default, strict or none, plus rules to add or remove, as in "
    "default,+emails.",
)
@click.option("--time", metavar="FIELD", help="jsonrpc: path of the time, as in meta.at.")
@click.option("--direction", metavar="FIELD", help="jsonrpc: path of the direction.")
@click.option("--message", metavar="FIELD", help="jsonrpc: path of the message (object or text).")
@click.option("--session", metavar="FIELD", help="jsonrpc: path of the session or connection id.")
@_direction("--c2s", "client to server")
@_direction("--s2c", "server to client")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    format_: str,
    paths: tuple[Path, ...],
    out: Path,
    *,
    listen: str | None,
    server: str | None,
    timezone: str,
    redaction: str,
    **envelope: Any,
) -> None:
    """Convert logs of other programs to transcripts.

    FORMAT is auto, claude-desktop, claude-code, codex, gemini-cli, opencode, vscode, cursor, har,
    otlp, sentry, langsmith, langfuse, litellm, access-log, mcpsnoop, mcphawk, inspector or jsonrpc.
    PATHS are files and folders; files may be compressed with gzip or zstd. The exit code is 1 if
    some lines could not be used; the report beside the transcript lists their numbers.

    \b
    Examples:
      mcptally import auto ~/Library/Logs/Claude -o traces
      mcptally import vscode mcp.log -o traces --timezone Europe/Berlin
      mcptally import jsonrpc wire.jsonl -o traces --time at --direction way --c2s out --s2c in
      mcptally import otlp --listen 127.0.0.1:4318 -o traces
    """
    from mcptally.importers import Envelope, import_logs
    from mcptally.importers.timestamps import parse_timezone
    from mcptally.redaction.policy import policy

    if bool(paths) == bool(listen) or (listen and format_ != "otlp"):
        raise click.UsageError("give PATHS, or the format otlp and --listen")
    received = None
    if listen:
        policy(redaction)  # rejects an invalid option before anything is received
        parse_timezone(timezone)
        received = _received(listen, out)
        paths = (received,)
    imported = import_logs(
        paths,
        out,
        format=format_,
        redaction=redaction,
        timezone=timezone,
        server=server,
        envelope=Envelope(**envelope),
        progress=_progress if sys.stderr.isatty() else None,
    )
    if received:
        received.unlink()
    _print_files(imported)
    _print_sums(imported, out)
    if not imported.recordings:
        ctx.exit(Exit.UNREADABLE)
    ctx.exit(Exit.FAILED if imported.unused_lines else Exit.DONE)


def _received(listen: str, out: Path) -> Path:
    """Receive spans at an address until Ctrl-C; return the path of the file with the spans."""
    import datetime

    from mcptally.importers.otlp_receiver import PATH, receive, require_library
    from mcptally.record.http.server import bind

    require_library()
    sockets = bind(listen)
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    path = out / f"received-{now:%Y%m%dT%H%M%S%f}"
    path.touch(mode=0o600, exist_ok=False)
    host, port = sockets[0].getsockname()[:2]
    address = f"http://{listen.rpartition(':')[0] or host}:{port}{PATH}"
    text = f"receiving spans at {address} until Ctrl-C, which writes the transcripts"
    with path.open("ab") as spans:
        receive(sockets, spans, lambda: say(text, prefix="mcptally: "))
    return path


def _print_files(done: "Imported") -> None:
    """Print which files were skipped, and the unused lines and notes of the other files."""
    for path, why in done.passed_over.items():
        say(f"skipped: {path}: {why}", prefix="mcptally: ")
    for outcome in done.files:
        tally = outcome.tally
        for why, places in tally.unused.items():
            lines = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in places.runs[:5])
            more = "" if len(places.runs) <= 5 else " and more"
            say(
                f"{outcome.file}:{places.runs[0][0]}: {count(places.count, 'line')} not used: "
                f"{why} (lines {lines}{more})",
                prefix="mcptally: ",
            )
        for note, n in tally.notes.items():
            say(f"{outcome.file}: {count(n)}: {note}", prefix="mcptally: ")
        if not outcome.recordings:
            say(f"{outcome.file}: no MCP traffic found", prefix="mcptally: ")


def _print_sums(done: "Imported", folder: Path) -> None:
    following = (
        f"next: mcptally score {as_argument(folder)} -o store"
        if done.recordings
        else "there is nothing to score"
    )
    records = sum(outcome.tally.seen for outcome in done.files)
    files = sum(1 + len(outcome.more) for outcome in done.files)
    share = (
        f" ({done.unused_lines / max(records, done.unused_lines):.1%} of the records)"
        if done.unused_lines
        else ""
    )
    click.echo(
        f"{count(files, 'file')}: {count(done.recordings, 'recording')}, "
        f"{count(done.events, 'event')}, {count(done.unused_lines, 'line')} not used{share}; "
        f"{following}"
    )


def _progress(path: Path, records: int) -> None:
    from mcptally.redaction.display import as_message

    click.echo(f"\r{as_message(path.name)}: {count(records, 'record')}", nl=False, err=True)
