"""The command `mcptally record`: runs an MCP server and records its traffic."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from mcptally.cli.quantity import DURATION, SIZE, Quantity

if TYPE_CHECKING:
    from mcptally.transcript.writer.interface import ArchiveWriter
    from mcptally.transcript.writer.limits import Limits


def _limit(
    name: str, kind: Quantity, default: str, text: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(name, type=kind, default=default, show_default=True, help=text)


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option(
    "--out",
    type=click.Path(),
    default="traces",
    show_default=True,
    help="Folder for the recordings; a ~ at its beginning is the home folder.",
)
@click.option("--name", help="Label of the server; default: the name of its command.")
@click.option("--url", help="Record the HTTP server at this URL instead of running a command.")
@click.option(
    "--listen", metavar="HOST:PORT", help="With --url: the address that clients connect to."
)
@click.option(
    "--ca-file",
    type=click.Path(),
    help="With an https --url: file of certificates to trust instead of the system's.",
)
@click.option(
    "--redact",
    "policy",
    default="default",
    show_default=True,
    metavar="POLICY",
    help="Redaction policy of the recording: default, strict or none, plus rules to add or remove, "
    "as in default,+emails.",
)
@_limit("--max-frame", SIZE, "16M", "Record only the beginning and size of larger frames.")
@_limit("--segment-size", SIZE, "64M", "Start a new file at this size.")
@_limit("--segment-age", DURATION, "1d", "Start a new file after this time.")
@_limit(
    "--keep-size",
    SIZE,
    "4G",
    "Maximum size of the folder; the oldest finished files are removed first.",
)
@_limit("--keep-age", DURATION, "30d", "Remove finished files older than this.")
@click.option(
    "--compress/--no-compress",
    default=True,
    show_default=True,
    help="Compress finished files with zstd.",
)
@_limit(
    "--disk-wait",
    DURATION,
    "1s",
    "How long traffic waits for a disk that does not respond, once 64 MiB of events are waiting "
    "for it; after that, events are lost and the loss is recorded.",
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
    """Run an MCP server and record its traffic.

    All bytes are passed on unchanged; a copy is written to the folder. The exit code is the
    server's (128 + signal; 127 if it cannot be started).

    \b
    Examples:
      mcptally record -- npx -y @modelcontextprotocol/server-memory
      mcptally record --out traces --name docs -- uvx some-mcp-server --flag
      mcptally record --url http://localhost:8000/mcp --listen 127.0.0.1:9000

    Units of sizes are K, M and G; units of times are s, m, h, d and w. 'off' turns a limit off.
    """
    if bool(command) == bool(url):
        raise click.UsageError("give either a command after `--`, or --url and --listen")
    if bool(url) != bool(listen):
        raise click.UsageError("--url and --listen can only be used together")
    out = os.path.expanduser(out)  # noqa: PTH111  (a client's configuration has no shell)
    _check_folder(out)

    def limits() -> "Limits":
        from mcptally.transcript.writer.limits import Limits

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

        ctx.exit(
            http_server.run(
                url=url,
                listen=listen,
                out=Path(out),
                name=name,
                policy=policy,
                limits=limits(),
                ca_file=Path(ca_file) if ca_file else None,
            )
        )

    if policy not in ("default", "strict", "none"):
        # Report a misspelt rule before the server starts. Common policies are not checked, to save
        # start-up time.
        from mcptally.redaction.policy import policy as policy_named

        policy_named(policy)

    def archive() -> "ArchiveWriter":
        from mcptally.transcript.writer.opening import open_archive

        return open_archive(out, policy=policy, limits=limits())

    from mcptally.record.stdio.session import run

    # Exit without cleanup: nothing is buffered, and the client waits for the process to end.
    os._exit(run(command, archive=archive, name=name))


def _check_folder(out: str) -> None:
    """Reject a path that cannot be a folder. Permissions and free space are not checked."""
    place = os.path.abspath(out)  # noqa: PTH100  (importing pathlib would delay the start)
    while not os.path.isdir(place):  # noqa: PTH112
        if os.path.islink(place):  # noqa: PTH114
            target = os.readlink(place)  # noqa: PTH115
            raise click.UsageError(
                f"--out {out}: {place} is a link to {target}, which is not a folder; create that "
                "folder, or name another one"
            )
        if os.path.lexists(place):
            raise click.UsageError(f"--out {out}: {place} is not a folder; name another one")
        place = os.path.dirname(place)  # noqa: PTH120
