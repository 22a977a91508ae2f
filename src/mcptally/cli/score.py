"""The command `mcptally score`: scores an archive and writes a store."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcptally.cli.options import (
    PATH,
    REVIEWS,
    SINCE,
    UNTIL,
    Gates,
    gate_options,
    say,
    write_unread,
)
from mcptally.cli.quantity import SIZE
from mcptally.errors import Exit, UsageError, as_argument
from mcptally.plural import count
from mcptally.transcript.remote import how_to_copy, is_url

if TYPE_CHECKING:
    from mcptally.pipeline.run import Summary


class _PathOrUrl(click.Path):
    """The type of an option whose value is a path, or a URL, which stays a string."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if is_url(value) else super().convert(value, param, ctx)


@click.command(name="score")
@click.argument("archive", nargs=-1, required=True)
@click.option(
    "-o",
    "--out",
    type=_PathOrUrl(path_type=Path),
    required=True,
    help="The store to write: a folder or a URL.",
)
@click.option("--rules", type=PATH, help="A TOML file that adds, replaces or disables rules.")
@click.option("--scenarios", type=PATH, help="A TOML or JSON file that assigns calls to scenarios.")
@REVIEWS
@click.option(
    "--jobs",
    type=click.IntRange(min=0),
    default=0,
    help="Maximum number of processes; 0, the default: one per core.",
)
@click.option(
    "--memory",
    type=SIZE,
    metavar="SIZE",
    help="Memory that all processes together should stay below, as in 600M. Less memory means "
    "smaller partitions and more time. Default: about 1G per process.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "dask"]),
    default="local",
    show_default=True,
    help="Use processes on this machine, or a Dask cluster.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Address of the Dask scheduler, as in tcp://host:8786, or a scheduler file. Default: "
    "DASK_SCHEDULER_ADDRESS, otherwise a cluster of --jobs workers on this machine.",
)
@click.option(
    "--server",
    "servers",
    metavar="NAME",
    multiple=True,
    help="Only recordings of this server. Can be repeated.",
)
@click.option(
    "--tool",
    "tools",
    metavar="NAME",
    multiple=True,
    help="Only calls to this tool. Can be repeated.",
)
@SINCE
@UNTIL
@click.option("--full", is_flag=True, help="Score all files again, including unchanged ones.")
@click.option("--no-payloads", is_flag=True, help="Do not store arguments, responses and texts.")
@gate_options(": 'failure_rate > 5%' (of a tool), 'server.confidence < 95', 'findings.error > 0'")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    archive: tuple[str, ...],
    out: Path | str,
    *,
    jobs: int,
    memory: float | None,
    no_payloads: bool,
    gates: Gates,
    **options: Any,
) -> None:
    """Validate and score recorded traffic, and write a store.

    ARCHIVE is one or more transcript files, folders (read recursively), patterns or URLs
    (s3://bucket/traces). Files may be compressed with gzip or zstd. If the store exists, only new
    and changed files, and recordings whose results they affect, are scored. Files that are no
    longer given are removed from the store.

    \b
    Examples:
      mcptally score traces -o store
      mcptally score 'traces/2026-11-*.jsonl.zst' more/ -o store --no-payloads
      mcptally score traces -o store --server github --since 24h
      mcptally score traces -o store --engine dask --scheduler tcp://head:8786
      mcptally score traces -o store --fail-on 'failure_rate > 5%' --junit report.xml
    """
    from mcptally.process_memory import configure_allocators

    configure_allocators()
    if gates.fail_on and isinstance(out, str):
        raise UsageError(f"--fail-on needs a store in a local folder; {out} is a URL")
    limits = gates.load()  # report an invalid gate before any work is done
    partition_bytes = None
    if memory is not None:
        jobs, partition_bytes = _fit_memory(int(memory), jobs)
    from mcptally.store.manifest import MANIFEST

    is_part = any(options[name] for name in ("servers", "tools", "since", "until"))
    is_new = not isinstance(out, str) and not (out / MANIFEST).exists()
    if options["engine"] == "local" and (is_new or options["full"]) and not is_part:
        from mcptally.pipeline.engines import local_engine

        options["engine"] = local_engine(archive, jobs=jobs)
    from mcptally.pipeline.run import score

    try:
        with progress_bar() as progress:
            summary = score(
                archive,
                out=out,
                payloads=not no_payloads,
                jobs=jobs,
                partition_bytes=partition_bytes,
                progress=progress,
                warn=say,
                **options,
            )
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; {_state_after_interrupt(out)}\n")
        ctx.exit(Exit.INTERRUPTED)
    _print_summary(summary, out, has_selection=is_part)
    if limits:
        from mcptally.analytics.store import open_store
        from mcptally.gates.limits import check_store
        from mcptally.gates.reviewed import check

        opened = open_store(out)
        gates.report(ctx, [*check_store(opened, limits), *check(opened, limits)])


def _print_summary(summary: "Summary", out: Path | str, *, has_selection: bool) -> None:
    """Print a summary of the run, and suggest next commands."""
    write = sys.stderr.write
    write_unread(summary.unread)
    if summary.in_full:
        write(f"{out}: all files were scored again: {summary.in_full}\n")
    elif summary.reused:
        write(f"reused {count(summary.reused)} of {count(summary.files, 'file')}\n")
    rows = summary.rows
    # Other commands cannot query a store at a URL.
    local = "store" if is_url(out) else as_argument(out)
    write(
        f"{count(summary.files, 'file')}, {summary.bytes / 1e6:,.1f} MB: "
        f"{count(rows['recordings'], 'recording')}, {count(rows['messages'], 'message')}, "
        f"{count(rows['calls'], 'call')}, {count(rows['tools'], 'tool definition')}, "
        f"{count(rows['findings'], 'finding')}\n"
    )
    if has_selection:
        write(
            f"left out by the selection: {count(summary.files_left_out, 'file')}, and "
            f"{count(summary.calls_left_out, 'call')} of the files that were read\n"
        )
    outcomes = sorted(summary.outcomes.items(), key=lambda item: -item[1])
    sums = ", ".join(f"{count(n)} {outcome}" for outcome, n in outcomes)
    write(f"calls: {sums or 'none'}\n")
    if summary.broken_lines:
        write(
            "what could not be read: "
            f'mcptally query {local} "SELECT file, line, rule, message FROM findings '
            "WHERE about = 'file'\"\n"
        )
    copy = f"{how_to_copy(out, 'store')}; then: " if isinstance(out, str) else ""
    question = "tool_scores" if sums else "servers"
    write(f"store: {out}; next: {copy}mcptally query {local} {question}\n")


def _fit_memory(memory: int, jobs: int) -> tuple[int, int]:
    """Return the number of processes and the partition size that fit into `memory` bytes."""
    from mcptally.pipeline.engines import cores
    from mcptally.pipeline.plan import (
        default_partition_bytes,
        jobs_for_memory,
        partition_bytes_for_memory,
    )

    jobs = jobs or jobs_for_memory(memory, cores())
    return jobs, min(default_partition_bytes(jobs), partition_bytes_for_memory(memory, jobs))


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[int, int], None]]:
    """Yield a function that updates a progress bar; it does nothing if stderr is not a terminal."""
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

        def update(done: int, total: int) -> None:
            # Count each byte when it is read, and again when it is scored.
            bar.update(
                task,
                completed=done,
                total=total,
                description="reading" if 2 * done < total else "scoring",
                megabytes=f"{done / 2e6:,.0f} of {total / 2e6:,.0f} MB",
            )

        yield update


def _state_after_interrupt(out: Path | str) -> str:
    """Return a sentence that states what an interrupted run left of the store."""
    if isinstance(out, str) or (out / "store.json").exists():
        return f"the store {out} was not changed"
    return f"no store was written to {out}"
