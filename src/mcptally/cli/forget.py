"""`mcptally forget`: data of a server, a tool or a recording, out of store and archive."""

import sys
from pathlib import Path

import click

from mcptally.errors import Exit


@click.command(name="forget")
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--server", help="Forget all recordings of this server.")
@click.option("--tool", help="Forget this tool; with --server or --recording, only there.")
@click.option("--recording", help="Forget this recording.")
@click.option(
    "--archive",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Further transcripts or folders that hold copies. May be repeated.",
)
@click.option(
    "--rules", type=click.Path(path_type=Path), help="The rule file the store was scored with."
)
@click.option(
    "--scenarios",
    type=click.Path(path_type=Path),
    help="The scenarios file the store was scored with.",
)
@click.option("--yes", is_flag=True, help="Do it. Without it nothing is changed.")
@click.pass_context
def command(
    ctx: click.Context,
    store: Path,
    *,
    server: str | None,
    tool: str | None,
    recording: str | None,
    archive: tuple[Path, ...],
    rules: Path | None,
    scenarios: Path | None,
    yes: bool,
) -> None:
    """Remove data from a store and from the transcripts it was made of.

    Transcripts are written anew; a gap in them, and store.json, say that something was forgotten,
    never what. The store is then as if it had been made of what is left. Exit code 1: done, but a
    transcript that holds some of it is not here.

    \b
    Examples:
      mcptally forget store --recording 0199b2c4-7d1e-7a63-9b7e-2f0e3c1d4a55
      mcptally forget store --server payments --yes
      mcptally forget store --server payments --tool refund --archive backups/ --yes
    """
    from mcptally import process_memory

    process_memory.settle()
    from mcptally.maintenance.forget import forget
    from mcptally.plural import count
    from mcptally.redaction.display import as_message

    told = forget(
        store,
        archive=archive,
        server=server,
        tool=tool,
        recording=recording,
        rules=rules,
        scenarios=scenarios,
        yes=yes,
    )
    say = sys.stderr.write
    say(
        f"{'forgot' if told.done else 'would forget'} {count(told.recordings, 'whole recording')}, "
        f"{count(told.calls, 'call')}, {count(told.events, 'line')} of "
        f"{count(len(told.files), 'transcript')}\n"
    )
    for name in told.missing:
        say(f"{as_message(name)}: is not here; what it says of this is not forgotten there\n")
    for name in told.taken_out:
        removal = "removed" if told.done else "would be removed"
        say(f"{as_message(name)}; {removal}: it may belong to what is forgotten\n")
    if told.done and told.missing:
        ctx.exit(Exit.FAILED)
    if not told.done:
        say("nothing was changed; to do it: the same command with --yes\n")
