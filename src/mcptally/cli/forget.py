"""The command `mcptally forget`: removes a server, tool or recording from store and archive."""

import sys
from pathlib import Path

import click

from mcptally.errors import Exit
from mcptally.plural import count


@click.command(name="forget")
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--server", help="Forget all recordings of this server.")
@click.option("--tool", help="Forget this tool, only in --server or --recording if given.")
@click.option("--recording", help="Forget this recording.")
@click.option(
    "--archive",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Further transcripts or folders with copies. Can be repeated.",
)
@click.option(
    "--rules", type=click.Path(path_type=Path), help="The rule file the store was scored with."
)
@click.option(
    "--scenarios",
    type=click.Path(path_type=Path),
    help="The scenarios file the store was scored with.",
)
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    help="The tokenizer the store was scored with.",
)
@click.option("--yes", is_flag=True, help="Remove the data. Without --yes, nothing is changed.")
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
    tokenizer: Path | None,
    yes: bool,
) -> None:
    """Remove data from a store and from the transcripts that it was made from.

    The transcripts are rewritten; the store is then as if it had been made from the remaining
    data. A gap event in the transcripts and an entry in store.json record that data were removed,
    but not which. Exit code 1: done, but some transcripts with such data were not found.

    \b
    Examples:
      mcptally forget store --recording 0199b2c4-7d1e-7a63-9b7e-2f0e3c1d4a55
      mcptally forget store --server payments --yes
      mcptally forget store --server payments --tool refund --archive backups/ --yes
    """
    from mcptally import process_memory

    process_memory.configure_allocators()
    from mcptally.maintenance.forget import forget
    from mcptally.redaction.display import as_message

    result = forget(
        store,
        archive=archive,
        server=server,
        tool=tool,
        recording=recording,
        rules=rules,
        scenarios=scenarios,
        tokenizer=tokenizer,
        yes=yes,
    )
    write = sys.stderr.write
    verb = "forgot" if result.done else "would forget"
    write(
        f"{verb} {count(result.recordings, 'whole recording')}, {count(result.calls, 'call')}, "
        f"{count(result.events, 'line')} of {count(len(result.files), 'transcript')}\n"
    )
    for name in result.missing:
        write(f"{as_message(name)}: not found; its data were not removed\n")
    for name in result.taken_out:
        removal = "removed" if result.done else "would be removed"
        write(f"{as_message(name)}; {removal}: it may hold forgotten data\n")
    if result.done and result.missing:
        ctx.exit(Exit.FAILED)
    if not result.done:
        write("nothing was changed; repeat the command with --yes to remove the data\n")
