"""`mcptally score`: an archive becomes a store."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from mcptally.cli.options import of_gates, require_gates, write_gate_reports
from mcptally.cli.quantity import SIZE
from mcptally.errors import Exit, UsageError
from mcptally.transcript.remote import is_url


class _Place(click.Path):
    """A path, or a URL as it stands."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if is_url(value) else super().convert(value, param, ctx)


@click.command(name="score")
@click.argument("archive", nargs=-1, required=True)
@click.option(
    "-o", "--out", type=_Place(path_type=Path), required=True, help="The store: a folder or a URL."
)
@click.option(
    "--rules",
    type=click.Path(path_type=Path),
    help="A TOML file that adds, replaces or disables rules.",
)
@click.option(
    "--scenarios",
    type=click.Path(path_type=Path),
    help="A TOML or JSON file that says which calls were tests of what.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=0),
    default=0,
    help="Processes at most; 0, the default: all cores.",
)
@click.option(
    "--memory",
    type=SIZE,
    metavar="SIZE",
    help="Memory that all processes together should stay below, as in 600M: smaller portions, "
    "more time. By default about 1G a process.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "dask"]),
    default="local",
    show_default=True,
    help="Who does the work: processes of this machine, or a Dask cluster.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Dask: tcp://host:8786 or a scheduler file; by default DASK_SCHEDULER_ADDRESS, or else "
    "a cluster of --jobs workers on this machine.",
)
@click.option("--full", is_flag=True, help="Score every file again, changed or not.")
@click.option("--no-payloads", is_flag=True, help="Leave arguments, responses and texts out.")
@click.option(
    "--fail-on",
    multiple=True,
    metavar="GATE",
    help="Exit with 1 where this holds for a tool: 'failure_rate > 5%', 'findings.error > 0', or "
    "a TOML file of gates. May be repeated.",
)
@of_gates
@click.pass_context
def command(
    ctx: click.Context,
    archive: tuple[str, ...],
    out: Path | str,
    *,
    rules: Path | None,
    scenarios: Path | None,
    jobs: int,
    memory: float | None,
    engine: str,
    scheduler: str | None,
    full: bool,
    no_payloads: bool,
    fail_on: tuple[str, ...],
    junit: Path | None,
    sarif: Path | None,
) -> None:
    """Validate and score recorded traffic into a store.

    ARCHIVE is transcript files, folders (read recursively) or patterns; plain, gzip or zstd; here
    or behind a URL (s3://bucket/traces).
    Where the store is there already, only what changed since is scored again, and what is not named
    any more leaves it.

    \b
    Examples:
      mcptally score traces -o store
      mcptally score 'traces/2026-11-*.jsonl.zst' more/ -o store --no-payloads
      mcptally score traces -o store --engine dask --scheduler tcp://head:8786
      mcptally score traces -o store --fail-on 'failure_rate > 5%' --junit report.xml
    """
    from mcptally.process_memory import settle

    settle()
    from mcptally.pipeline.run import score
    from mcptally.plural import count

    require_gates(fail_on, junit, sarif)
    if fail_on and isinstance(out, str):
        raise UsageError(f"--fail-on asks the store, which has to be in a folder; {out} is none")
    if fail_on:  # a text that is no gate is told before the work
        from mcptally.gates import limits as gates

        limits = gates.load(fail_on)
    limit = None
    if memory is not None:
        jobs, limit = _within(int(memory), jobs)
    try:
        with _shown() as progress:
            summary = score(
                archive,
                out=out,
                rules=rules,
                scenarios=scenarios,
                payloads=not no_payloads,
                full=full,
                jobs=jobs,
                engine=engine,
                scheduler=scheduler,
                partition_bytes=limit,
                progress=progress,
            )
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; {_left(out)}\n")
        ctx.exit(Exit.INTERRUPTED)
    say = sys.stderr.write
    if summary.in_full:
        say(f"{out} was made anew: {summary.in_full}\n")
    elif summary.reused:
        say(f"reused {summary.reused:,} of {summary.files:,} files\n")
    rows = summary.rows
    say(
        f"{count(summary.files, 'file')}, {summary.bytes / 1e6:,.1f} MB: "
        f"{count(rows['recordings'], 'recording')}, {count(rows['messages'], 'message')}, "
        f"{count(rows['calls'], 'call')}, {count(rows['tools'], 'tool definition')}, "
        f"{count(rows['findings'], 'finding')}\n"
    )
    outcomes = sorted(summary.outcomes.items(), key=lambda item: -item[1])
    say("calls: " + ", ".join(f"{n:,} {outcome}" for outcome, n in outcomes) + "\n")
    if summary.broken_lines:
        say(
            f"{summary.broken_lines:,} lines or files could not be read; they are findings: "
            f'mcptally query {out} "SELECT file, line, rule, message FROM findings '
            "WHERE about = 'file'\"\n"
        )
    say(f"store: {out}; next: mcptally query {out} tool_scores\n")
    if fail_on:
        from mcptally.analytics.store import open_store

        write_gate_reports(ctx, gates.check(open_store(out), limits), junit, sarif)


def _within(memory: int, jobs: int) -> tuple[int, int]:
    """How many processes, and bytes of transcript for each at a time, fit into `memory` bytes."""
    from mcptally.pipeline.engines import cores
    from mcptally.pipeline.plan import jobs_of, limit_of, partition_of

    jobs = jobs or jobs_of(memory, cores())
    return jobs, min(limit_of(jobs), partition_of(memory, jobs))


@contextlib.contextmanager
def _shown() -> Iterator[Callable[[int, int], None]]:
    """Progress on stderr where somebody watches; silence elsewhere."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[megabytes]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None, megabytes="")

        def tell(done: int, total: int) -> None:
            # Every byte counts twice: once when it is read, once when it is judged.
            bar.update(
                task,
                completed=done,
                total=total,
                description="reading" if 2 * done < total else "judging",
                megabytes=f"{done / 2e6:,.0f} of {total / 2e6:,.0f} MB",
            )

        yield tell


def _left(out: Path | str) -> str:
    """What an interrupted run leaves behind."""
    if isinstance(out, str) or (out / "store.json").exists():
        return f"the store {out} is as it was before"
    return f"there is no store in {out} yet"
