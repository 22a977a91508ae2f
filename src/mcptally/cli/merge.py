"""`mcptally merge`: several stores become one."""

import sys
from pathlib import Path

import click


@click.command(name="merge")
@click.argument("stores", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="The store.")
@click.option(
    "--rules", type=click.Path(path_type=Path), help="The rule file the stores were scored with."
)
@click.option(
    "--scenarios",
    type=click.Path(path_type=Path),
    help="The scenarios file the stores were scored with.",
)
def command(
    stores: tuple[Path, ...], *, out: Path, rules: Path | None, scenarios: Path | None
) -> None:
    """Put several stores into one, as if their archives had been scored together.

    A recording that several stores hold counts once, as the first of them has it. Recordings that
    the stores together judge otherwise than one alone are scored again from their transcripts,
    where these are here.

    \b
    Examples:
      mcptally merge monday tuesday wednesday -o week
      mcptally merge all today -o all
    """
    from mcptally import process_memory

    process_memory.settle()
    from mcptally.maintenance.merge import merge_stores
    from mcptally.plural import count

    done = merge_stores(stores, out=out, rules=rules, scenarios=scenarios)
    say = sys.stderr.write
    rows = done.rows
    say(
        f"{count(done.stores, 'store')}, {count(done.files, 'file')}, {done.reused:,} of them as "
        f"scored before: {count(rows['recordings'], 'recording')}, {count(rows['calls'], 'call')}\n"
    )
    if done.twice:
        say(f"{count(done.twice, 'recording')} in several stores, counted once\n")
    if done.as_scored:
        say(
            f"{count(len(done.as_scored), 'recording')} as one store alone judged or held, without "
            "a transcript here; to fix it where the transcripts are: "
            f"mcptally score ARCHIVE -o {out}\n"
        )
    say(f"store: {out}; next: mcptally query {out} tool_scores\n")
