"""`mcptally record`: a server behind the recorder."""

import os
import sys
from typing import TYPE_CHECKING

import click

from mcptally.cli.quantity import SIZE, SPAN

if TYPE_CHECKING:
    from mcptally.record.limits import Limits
    from mcptally.record.writer.recording import Archive


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option(
    "--out",
    type=click.Path(),
    default="traces",
    show_default=True,
    help="Folder for the recordings.",
)
@click.option("--name", help="Label of the server; default: its command's name.")
@click.option("--url", help="Record an HTTP server at this URL instead of a command.")
@click.option("--listen", metavar="HOST:PORT", help="With --url: where clients connect.")
@click.option(
    "--ca-file",
    type=click.Path(),
    help="With an https --url: certificates to trust instead of the system's.",
)
@click.option(
    "--redact",
    "policy",
    default="default",
    show_default=True,
    metavar="POLICY",
    help="What is hidden in the recorded copy: default, strict or none, and rules switched on or "
    "off by name, as in default,+emails.",
)
@click.option(
    "--max-frame",
    type=SIZE,
    default="16M",
    show_default=True,
    help="A larger frame is recorded as its head, size and hash.",
)
@click.option(
    "--segment-size", type=SIZE, default="64M", show_default=True, help="Begin a new file at."
)
@click.option(
    "--segment-age", type=SPAN, default="1d", show_default=True, help="Begin a new file after."
)
@click.option(
    "--keep-size",
    type=SIZE,
    default="4G",
    show_default=True,
    help="Of the folder; the oldest finished files go first.",
)
@click.option("--keep-age", type=SPAN, default="30d", show_default=True, help="Remove older files.")
@click.option(
    "--compress/--no-compress", default=True, show_default=True, help="Finished files to zstd."
)
@click.option(
    "--disk-wait",
    type=SPAN,
    default="1s",
    show_default=True,
    help="How long traffic waits for a disk that does not answer; then events are lost, and "
    "counted.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context,
    *,
    out: str,
    name: str | None,
    url: str | None,
    listen: str | None,
    ca_file: str | None,
    policy: str,
    max_frame: float | None,
    segment_size: float | None,
    segment_age: float | None,
    keep_size: float | None,
    keep_age: float | None,
    compress: bool,
    disk_wait: float | None,
    command: tuple[str, ...],
) -> None:
    """Run an MCP server behind the recorder.

    Every byte passes unchanged; a copy goes to the folder. The exit code is the server's
    (128 + signal; 127 when it cannot be started).

    \b
    Examples:
      mcptally record -- npx -y @modelcontextprotocol/server-memory
      mcptally record --out traces --name docs -- uvx some-mcp-server --flag
      mcptally record --url http://localhost:8000/mcp --listen 127.0.0.1:9000

    Sizes take K, M, G; times take s, m, h, d, w; 'off' switches a limit off.
    """
    if bool(command) == bool(url):
        raise click.UsageError("give either a command after `--`, or --url and --listen")
    if bool(url) != bool(listen):
        raise click.UsageError("--url and --listen go together")

    def limits() -> "Limits":
        from mcptally.record.limits import Limits

        return Limits(
            frame_bytes=2**62 if max_frame is None else int(max_frame),
            segment_bytes=None if segment_size is None else int(segment_size),
            segment_seconds=segment_age,
            keep_bytes=None if keep_size is None else int(keep_size),
            keep_seconds=keep_age,
            compress=compress,
            stall_seconds=disk_wait,
        )

    if url and listen:
        from pathlib import Path

        from mcptally.record.http import server as http_server
        from mcptally.redaction import policy as redaction_policy

        ctx.exit(
            http_server.run(
                url=url,
                listen=listen,
                out=Path(out),
                name=name,
                policy=redaction_policy.policy(policy),
                limits=limits(),
                ca_file=Path(ca_file) if ca_file else None,
            )
        )

    if policy not in ("default", "strict", "none"):
        # A word that may be misspelt is looked at before the server starts; the usual ones wait.
        from mcptally.redaction import policy as redaction_policy

        redaction_policy.policy(policy)

    def archive() -> "Archive":
        from mcptally.record.writer.recording import Archive
        from mcptally.redaction import policy as redaction_policy

        return Archive(out, policy=redaction_policy.policy(policy), limits=limits())

    if sys.platform == "win32":
        from mcptally.record.stdio.windows import run
    else:
        from mcptally.record.stdio.session import run

    # At once, as the server did: nothing of ours is buffered, and the client waits.
    os._exit(run(command, archive=archive, name=name))
