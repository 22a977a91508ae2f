"""Scores an archive into a store: finds, plans, gathers, adds dependents, finishes, publishes.

Each step depends only on its arguments. If the store already exists, only changed files and the
recordings that depend on them are scored; all other rows are carried over (`incremental`).
"""

import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from mcptally.analytics.filters import Moment
from mcptally.errors import UnreadableError
from mcptally.pipeline import fingerprint, incremental
from mcptally.pipeline.archive_context import ArchiveContext
from mcptally.pipeline.carry_over import CarriedOver, carry_over, count_rows
from mcptally.pipeline.engines import open_engine
from mcptally.pipeline.engines.pool import Engine, WorkerPool
from mcptally.pipeline.engines.worker import FinishSettings
from mcptally.pipeline.gathering import (
    Gathered,
    Progress,
    Settings,
    affected_servers,
    files_to_gather,
    gather_with_dependents,
    stored_summaries,
)
from mcptally.pipeline.incremental import EarlierStores
from mcptally.pipeline.partition import KnownLint, tools
from mcptally.pipeline.partition_summary import NEEDS, PartitionSummary
from mcptally.pipeline.plan import (
    bytes_in_memory,
    default_partition_bytes,
    find_transcripts,
    limit_for_archive,
    plan,
    sizes_of,
    undivided,
)
from mcptally.pipeline.scoring import ScoringRules
from mcptally.pipeline.selection import Selection
from mcptally.plural import count
from mcptally.review.answers import AppliedReviews, read
from mcptally.review.place import from_store, reviews_file_of
from mcptally.store import work_folder
from mcptally.store.manifest import (
    SUMMARIES,
    VIEWS,
    WORK,
    live_files,
    views_are_current,
)
from mcptally.store.parts import ARCHIVE_PART, SKIPPED, Written, remove_orphan_summaries, write_part
from mcptally.store.remote_copy import local_copy
from mcptally.store.source_files import SourceFile, unread_of
from mcptally.store.work_folder import Provenance, working
from mcptally.tables.all_tables import TABLES
from mcptally.tables.calls import Calls
from mcptally.tables.findings import Finding, Findings, findings_frame
from mcptally.tables.recordings import Recordings
from mcptally.tables.stages import Definitions
from mcptally.transcript.discover import SkippedFile
from mcptally.transcript.remote import is_url
from mcptally.transcript.unread import Unread


class Summary(msgspec.Struct, frozen=True):
    """What a run did, and what the new store contains."""

    out: str | Path
    files: int
    """Number of files in the archive, whether read in this run or reused."""
    bytes: int
    """Total size of the files on disk."""
    rows: dict[str, int]
    """Number of rows in each table of the new store."""
    broken_lines: int
    """Number of findings of severity `error` about files, which report unreadable parts."""
    outcomes: dict[str, int]
    """Maps each outcome to its number of calls."""
    reused: int = 0
    """Number of files whose rows are from an earlier run."""
    in_full: str | None = None
    """Why no row of the existing store could be reused; None if rows were reused or there was no
    store."""
    files_left_out: int = 0
    """Number of files that were not decoded, because they contain no selected call."""
    calls_left_out: int = 0
    """Number of unselected calls in the recordings of the files read in this run."""
    unread: Unread | None = None
    """The parts of the archive that could not be read; None if everything was read."""


class Build(msgspec.Struct, frozen=True):
    """The content of a new store: parts in the work folder, and files that stay in place."""

    written: Written
    kept: Mapping[str, Mapping[str, Any]]
    """Maps the names of files that stay in the store to their manifest entries."""
    sources: Sequence[SourceFile]
    """The files of the archive."""
    reused: int
    """The number of files that were not scored again."""
    as_scored: Sequence[str]
    """Recordings that should have been scored again, but whose files were not available."""
    left_out: int = 0
    """Number of unselected calls in the recordings of the scored files."""


def score(
    paths: Iterable[str | Path],
    *,
    out: str | Path,
    rules: str | Path | None = None,
    scenarios: str | Path | None = None,
    reviews: str | Path | None = None,
    payloads: bool = True,
    servers: Collection[str] = (),
    tools: Collection[str] = (),
    since: Moment | None = None,
    until: Moment | None = None,
    full: bool = False,
    jobs: int = 1,
    engine: Any = "local",
    scheduler: str | None = None,
    partition_bytes: int | None = None,
    progress: Progress = lambda *_: None,
    warn: Callable[[str], None] = lambda _: None,
) -> Summary:
    """Score an archive into a store.

    Args:
        paths: transcript files, folders or patterns; also URLs such as s3://bucket/traces.
        out: the store, a folder or a URL. If it exists, rows of unchanged files are reused. The
            existing store stays unchanged until the run is complete.
        rules: a TOML file that adds, replaces or disables rules.
        scenarios: a TOML or JSON file that assigns calls to test scenarios.
        reviews: a file of answers from `mcptally review`; by default `reviews.jsonl`, if it exists,
            in the folder that contains all of the archive's files.
        payloads: whether to keep arguments, responses and their text.
        servers: only recordings of servers with these labels; empty for all.
        tools: only calls to tools with these names; empty for all calls.
        since: only calls made at or after this time: a date or time, its ISO text, `7d` or `24h`.
        until: only calls made before this time.
        full: whether to score every file again, changed or not.
        jobs: maximum number of processes; 0 means one per core. With several processes, a script
            needs `if __name__ == "__main__":`, as for any process pool.
        engine: "local", "dask", or a `distributed.Client` of a Dask cluster.
        scheduler: address or scheduler file of the Dask cluster; by default the scheduler in Dask's
            configuration (`DASK_SCHEDULER_ADDRESS`), or else `jobs` workers on this machine.
        partition_bytes: bytes of transcript that a process works on at a time. The default is 160
            MiB (240 MiB for one process), or 1.5 times as much if one partition per process then
            suffices.
        progress: called with the number of bytes done and the total number.
        warn: called before work begins, with a message about each recording that needs more memory
            than planned.

    Raises:
        UnreadableError: nothing could be read, or no call is selected.
        StoreError: `out` contains something other than a store, or another run is writing to it.
        RuleError: the rule file cannot be used.
        UsageError: the scenarios or a time cannot be used, `jobs` is negative, the engine is
            unknown, or a package that the engine or a URL needs is not installed.
        McptallyError: a cluster or a URL cannot be reached, or a process of the run died.
    """
    judging = ScoringRules.of(rules=rules, scenarios=scenarios)
    selection = Selection.of(servers=servers, tools=tools, since=since, until=until)
    skipped: list[SkippedFile] = []
    found_files = find_transcripts(
        [paths] if isinstance(paths, (str, Path)) else paths, skipped.append
    )
    files, others = selection.files(found_files)
    if not files:
        raise UnreadableError(_nothing_selected(selection, others))
    reviews_file = reviews_file_of(found_files, reviews)
    if reviews_file is not None:
        judging = msgspec.structs.replace(judging, reviews=_answers(reviews_file))
    upload_url = f"{out}/{WORK}" if isinstance(out, str) and is_url(out) else None
    with (
        local_copy(out, full=full) as store,
        open_engine(engine, scheduler=scheduler, jobs=jobs, upload_url=upload_url) as workers,
        working(store) as work,
    ):
        code = fingerprint.code_digest()
        made = Provenance(
            judging.digest,
            payloads,
            code,
            selection=selection.for_manifest(),
            own_rules=judging.rules.changes,
            reviews_file=from_store(reviews_file, None if upload_url else store),
            started_in=from_store(Path.cwd(), None if upload_url else store),
            reviews=msgspec.to_builtins([*judging.reviews.calls, *judging.reviews.groups]),
        )
        limit = partition_bytes or default_partition_bytes(workers.jobs)
        settings = Settings(store, work, judging, payloads, limit, selection, progress, warn)
        found = incremental.open_earlier(store, made)
        blocker = found if isinstance(found, str) and not full else None
        earlier = None if full or isinstance(found, str) else found
        if earlier is not None:
            earlier = _without_changed_answers(earlier.without_changed(files), judging.reviews)
        if earlier is not None and not skipped and earlier.is_same_store(map(str, files), made):
            _refresh_views(store)  # the store may have been moved
            summary = _unchanged(store, earlier)
        else:
            if earlier is not None and selection.leaves_out_evidence:
                earlier, blocker = None, "rows of a selection of tools or time are not reused"
            built = build(settings, files, workers, earlier, skipped=skipped)
            summary = publish(settings, built, made)
    return msgspec.structs.replace(
        summary, out=out, in_full=blocker, files_left_out=len(found_files) - len(files)
    )


def _answers(file: Path) -> AppliedReviews:
    """Read the valid review answers in a file; none if the file does not exist."""
    if not file.exists():
        return AppliedReviews()
    from mcptally.review.apply import counted  # noqa: PLC0415  (few archives are reviewed)

    return counted(read(file))


def _without_changed_answers(earlier: EarlierStores, now: AppliedReviews) -> EarlierStores:
    """Return the earlier stores without rows that a changed review answer may affect."""
    if not now and not any(each.get("reviews") for each in earlier.manifests):
        return earlier
    from mcptally.review.changes import changed_recordings  # noqa: PLC0415  (as above)

    changed: set[str] = set()
    for folder, manifest in zip(earlier.folders, earlier.manifests, strict=True):
        calls = live_files(folder, manifest)[Calls.name]
        changed |= changed_recordings(manifest.get("reviews", ()), now, calls)
    return earlier.without(earlier.files_of(changed))


def build(
    settings: Settings,
    files: Sequence[str | Path],
    engine: Engine,
    earlier: EarlierStores | None,
    *,
    skipped: Sequence[SkippedFile] = (),
) -> Build:
    """Score the new files among `files`, and carry over the other rows of earlier stores.

    Args:
        settings: the settings of the run.
        files: all files of the archive, by name, or as a `RemoteFile`.
        engine: the processes or cluster that do the work.
        earlier: the earlier stores, without the rows of changed files.
        skipped: paths that were not read; each becomes a finding.
    """
    named = {str(file): file for file in files}
    sizes = sizes_of(files_to_gather(named, earlier))
    limit = limit_for_archive(sum(sizes.values()), settings.partition_bytes, engine.jobs)
    settings = msgspec.structs.replace(settings, partition_bytes=limit)
    for message in undivided(sizes, limit):
        settings.warn(message)
    groups = plan(sizes, limit=limit, jobs=engine.jobs)
    memory = bytes_in_memory(settings.partition_bytes)
    with engine.pool(max(1, len(groups)), settings.work, memory) as pool:
        gathered, earlier, context = gather_with_dependents(
            settings, pool, engine, groups, named, earlier
        )
        carried = _carry_over(settings, earlier)
        finishing = _finish(settings, pool, gathered, context)
        finished = [*itertools.islice(finishing, 1)]
        # This process has finished its first partition; others may still be working.
        known = earlier.known_lint(affected_servers(gathered, earlier)) if earlier else None
        finished.append(_write_archive_tables(settings, context, skipped, known))
        finished += finishing
    remove_orphan_summaries(settings.work)
    reused = earlier.reused_sources(named) if earlier else []
    return Build(
        _total([carried.written, *finished]),
        carried.kept,
        _sources(gathered, reused),
        len(reused),
        sorted(earlier.as_scored | earlier.conflicting) if earlier else (),
        sum(each.report.left_out for each in gathered),
    )


def publish(settings: Settings, built: Build, made: Provenance) -> Summary:
    """Replace the existing store with the new one, and remove the existing store's files.

    Raises:
        UnreadableError: nothing could be read.
    """
    if settings.selection and built.left_out and not built.written.rows[Recordings.name]:
        raise UnreadableError(_nothing_selected(settings.selection, ()))
    if not built.written.rows[Recordings.name]:
        files = [source.file for source in built.sources]
        raise UnreadableError(_nothing_readable(settings.work, files))
    work_folder.publish(
        settings.store,
        settings.work,
        sources=built.sources,
        rows=built.written.rows,
        made=msgspec.structs.replace(made, as_scored=built.as_scored),
        kept=built.kept,
    )
    # The views refer to live files, so replace the views before `working` removes the old files.
    _refresh_views(settings.store)
    return Summary(
        settings.store,
        len(built.sources),
        sum(source.size for source in built.sources),
        built.written.rows,
        built.written.broken,
        built.written.outcomes,
        built.reused,
        calls_left_out=built.left_out,
        unread=unread_of(built.sources),
    )


def _refresh_views(store: Path) -> None:
    """Write a store's `mcptally.duckdb` again, if there is one and it is outdated or was moved."""
    if (store / VIEWS).exists() and not views_are_current(store):
        from mcptally.analytics import duckdb_file  # noqa: PLC0415  (loads DuckDB)

        duckdb_file.refresh(store)


def _unchanged(store: Path, earlier: EarlierStores) -> Summary:
    """Return the summary of a run that left the store unchanged."""
    written = count_rows(
        path
        for name, paths in live_files(store, earlier.manifests[0]).items()
        if not name.startswith(SUMMARIES)
        for path in paths
    )
    return Summary(
        store,
        len(earlier.sources),
        sum(source.size for source in earlier.sources.values()),
        written.rows,
        written.broken,
        written.outcomes,
        len(earlier.sources),
        unread=unread_of(earlier.sources.values()),
    )


def _carry_over(settings: Settings, earlier: EarlierStores | None) -> CarriedOver:
    if earlier is None:
        return CarriedOver(Written(dict.fromkeys((table.name for table in TABLES), 0), {}, 0), {})
    return carry_over(earlier, settings.work, settings.store)


def _finish(
    settings: Settings, pool: WorkerPool, gathered: Sequence[Gathered], context: ArchiveContext
) -> Iterator[Written]:
    """Finish the gathered partitions; yield the row counts of each when it is finished."""

    def context_of(number: int) -> PartitionSummary:
        summaries = stored_summaries(settings.work, [number])
        own = summaries.read("listed", ["definition"]).get_column(Definitions.definition.name)
        return context.excerpt(summaries.read(NEEDS), own)

    numbers = [each.partition.number for each in gathered]
    total = sum(each.partition.size for each in gathered)
    done = total
    how = FinishSettings(settings.judging, settings.payloads)
    for written in pool.finish(numbers, context_of, how):
        done += total // len(numbers)
        settings.progress(done, 2 * total)
        yield written


def _write_archive_tables(
    settings: Settings,
    context: ArchiveContext,
    skipped: Sequence[SkippedFile],
    known: KnownLint | None,
) -> Written:
    """Write the `tools` table, and the findings about definitions and about skipped paths."""
    rows = dict.fromkeys((table.name for table in TABLES), 0)
    written = tools(context.summary(), context.sightings.rows, known)
    for table, frame in written.items():
        rows[table.name] += write_part(settings.work, table, ARCHIVE_PART, frame)
    if skipped:
        findings = [
            Finding("archive.not_followed", "warning", "file", each.why, file=each.name)
            for each in skipped
        ]
        frame = findings_frame(findings)
        rows[Findings.name] += write_part(settings.work, Findings, SKIPPED, frame)
    return Written(rows, {}, 0)


def _total(written: Iterable[Written]) -> Written:
    """Sum several `Written` counts."""
    rows = dict.fromkeys((table.name for table in TABLES), 0)
    outcomes: dict[str, int] = {}
    broken = 0
    for each in written:
        for name, number in each.rows.items():
            rows[name] += number
        for outcome, number in each.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + number
        broken += each.broken
    return Written(rows, outcomes, broken)


def _sources(gathered: Sequence[Gathered], reused: Sequence[SourceFile]) -> list[SourceFile]:
    """Return the records of the archive's gathered and reused files, sorted."""
    sources: dict[str, SourceFile] = {}
    for each in gathered:
        span = each.partition.span
        for source in each.report.sources:
            part = source if span is None else source.as_share(span.share)
            known = sources.get(part.file)
            sources[part.file] = part if known is None else known.with_rest(part)
    return sorted([*reused, *sources.values()], key=operator.attrgetter("file"))


def _nothing_selected(selection: Selection, servers: Collection[str]) -> str:
    """Return the error message for an archive without selected calls."""
    known = f"; servers in the archive: {', '.join(sorted(servers)[:20])}" if servers else ""
    return f"no call in the archive matches: {selection.in_words()}{known}"


def _nothing_readable(work: Path, files: Sequence[str]) -> str:
    """Return the error message for files without events: the first findings of up to five files."""
    findings = pl.read_parquet(sorted((work / Findings.name).glob("*.parquet")), glob=False)
    first = findings.unique("file", keep="first", maintain_order=True).head(5)
    faults = [
        f"{file}{f':{line}' if line else ''}: {message}"
        for file, line, message in first.select("file", "line", "message").iter_rows()
    ]
    if first["rule"].str.starts_with("transcript.").any():
        faults.append("to convert a log of another program: mcptally import auto LOG -o traces")
    return "\n".join([f"nothing readable in {count(len(files), 'file')}", *faults])
