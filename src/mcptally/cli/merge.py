"""The command `mcptally merge`: merges several stores into one."""

import sys
from pathlib import Path

import click

from mcptally.cli.options import PATH
from mcptally.errors import as_argument
from mcptally.plural import count


@click.command(name="merge")
@click.argument("stores", nargs=-1, required=True, type=PATH)
@click.option("-o", "--out", type=PATH, required=True, help="The store to write.")
@click.option("--rules", type=PATH, help="The rule file the stores were scored with.")
@click.option("--scenarios", type=PATH, help="The scenarios file the stores were scored with.")
def command(
    stores: tuple[Path, ...], *, out: Path, rules: Path | None, scenarios: Path | None
) -> None:
    """Merge several stores into one, as if their archives had been scored together.

    A recording that is in several stores counts once, as in the first of them. A verdict can depend
    on other recordings of the same server: recordings whose results the merge changes are scored
    again from their transcripts, if these are available.

    \b
    Examples:
      mcptally merge monday tuesday wednesday -o week
      mcptally merge all today -o all
    """
    from mcptally import process_memory

    process_memory.configure_allocators()
    from mcptally.maintenance.merge import merge_stores

    done = merge_stores(stores, out=out, rules=rules, scenarios=scenarios)
    write = sys.stderr.write
    rows = done.rows
    write(
        f"{count(done.stores, 'store')}, {count(done.files, 'file')} ({count(done.reused)} reused "
        f"as scored before): {count(rows['recordings'], 'recording')}, "
        f"{count(rows['calls'], 'call')}\n"
    )
    if done.twice:
        write(f"{count(done.twice, 'recording')} found in several stores, counted once\n")
    if done.as_scored:
        write(
            f"{count(len(done.as_scored), 'recording')} could not be scored again: the transcripts "
            "were not found; the results of one store were kept. To fix this, run where the "
            f"transcripts are: mcptally score ARCHIVE -o {as_argument(out)}\n"
        )
    write(f"store: {out}; next: mcptally query {as_argument(out)} tool_scores\n")
