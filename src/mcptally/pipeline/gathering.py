"""Gathers the partitions of a run: first changed files, then the files that depend on them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import polars as pl

from mcptally.pipeline.archive_context import ArchiveContext, StoredSummaries
from mcptally.pipeline.engines.pool import Engine, WorkerPool
from mcptally.pipeline.engines.worker import GatherReport, Partition
from mcptally.pipeline.incremental import EarlierStores
from mcptally.pipeline.plan import Group, bytes_in_slice, plan, sizes_of
from mcptally.pipeline.scoring import ScoringRules
from mcptally.pipeline.selection import EVERYTHING, Selection
from mcptally.store.manifest import SUMMARIES
from mcptally.transcript.discover import path_of

Progress = Callable[[int, int], None]
"""A function that is called with the number of bytes done and the total. Every file counts twice:
for gathering and for finishing."""


class Settings(msgspec.Struct, frozen=True):
    """The settings that all steps of a run share."""

    store: Path
    work: Path
    """The work folder inside the store."""
    judging: ScoringRules
    payloads: bool
    partition_bytes: int
    """Number of transcript bytes per partition."""
    selection: Selection = EVERYTHING
    progress: Progress = lambda *_: None
    warn: Callable[[str], None] = lambda _: None


class Gathered(msgspec.Struct, frozen=True):
    """A partition that a worker has gathered, and the worker's report."""

    partition: Partition
    report: GatherReport


def files_to_gather(named: Mapping[str, str | Path], earlier: EarlierStores | None) -> list[Path]:
    """Return the files that are new, or whose rows are not reused."""
    if earlier is None:
        return [*map(path_of, named.values())]
    sources, rescored = earlier.sources, earlier.rescored
    found = [name for name in named if name not in sources or name in rescored]
    return [path_of(named[name]) for name in sorted(found)]


def gather_with_dependents(
    settings: Settings,
    pool: WorkerPool,
    engine: Engine,
    groups: list[Group],
    named: Mapping[str, str | Path],
    earlier: EarlierStores | None,
) -> tuple[list[Gathered], EarlierStores | None, ArchiveContext]:
    """Gather groups of files, and then the files whose rows depend on them.

    Returns:
        All gathered partitions, the earlier stores without the rows of the gathered files, and the
        facts about the archive that result.
    """
    # Parts that are carried over have lower numbers.
    first = len(earlier.parts) + 1 if earlier else 0
    gathered: list[Gathered] = []
    while True:
        gathered += _gather(settings, pool, groups, gathered, first)
        gathered = _merge_split_recordings(pool, gathered)
        if earlier is None:
            return gathered, None, _archive_context(settings, gathered, None)
        extended, context = _without_dependents(settings, gathered, earlier)
        more = sorted(extended.rescored - earlier.rescored)
        earlier = extended
        if not more and context is not None:
            return gathered, earlier, context
        sizes = sizes_of(path_of(named.get(name, name)) for name in more)
        groups = plan(sizes, limit=settings.partition_bytes, jobs=engine.jobs)


def _gather(
    settings: Settings,
    pool: WorkerPool,
    groups: Sequence[Group],
    before: Sequence[Gathered],
    first: int,
) -> list[Gathered]:
    """Gather groups of files as partitions.

    The first partition gets the number after the last one in `before` or, if there is none,
    `first`.
    """
    first = max((each.partition.number + 1 for each in before), default=first)
    chunk = bytes_in_slice(settings.partition_bytes)
    partitions = [
        Partition(
            first + place, group.files, group.size, settings.selection, chunk, span=group.span
        )
        for place, group in enumerate(groups)
    ]
    sizes = {each.number: each.size for each in partitions}
    done = sum(each.partition.size for each in before)
    total = done + sum(sizes.values())
    reports: dict[int, GatherReport] = {}
    for number, report in pool.gather(partitions):
        reports[number] = report
        done += sizes[number]
        settings.progress(done, 2 * total)
    return [Gathered(each, reports[each.number]) for each in partitions]


def _merge_split_recordings(pool: WorkerPool, gathered: Sequence[Gathered]) -> list[Gathered]:
    """Gather again, as one partition, partitions that share a recording; return all partitions.

    A file may contain several recordings, but the plan only knows the first recording of a file, so
    it cannot put all files that share a recording into one partition.
    """
    partitions = {each.partition.number: each for each in gathered}
    while groups := _sharing_recordings(partitions):
        for shared in groups:
            if not partitions.keys() >= set(shared):
                continue  # the partition is already in a group, and is examined in the next round
            files = sorted({path for each in shared for path in partitions[each].partition.files})
            # Merge all spans of a file, so that the merged partition has whole files.
            group = [
                each
                for each, part in partitions.items()
                if each in shared or (part.partition.span and part.partition.files[0] in files)
            ]
            # Use a new number, because a late worker may still write a discarded partition.
            number = max(partitions) + 1
            parts = [partitions.pop(each) for each in group]
            pool.discard(group)
            size = sum(part.partition.size for part in parts)
            merged = msgspec.structs.replace(
                parts[0].partition, number=number, files=files, size=size, span=None
            )
            [(_, report)] = pool.gather([merged])
            partitions[number] = Gathered(merged, report)
    return list(partitions.values())


def _sharing_recordings(partitions: Mapping[int, Gathered]) -> list[list[int]]:
    """Group partitions (by number) that share recordings, directly or indirectly."""
    # Count hashes, which takes a sixth of the memory of grouping ids; each partition lists an id
    # only once.
    hashes = [each.report.recordings.hash() for each in partitions.values()]
    every = pl.concat([pl.Series(dtype=pl.UInt64), *hashes], rechunk=True)
    if every.n_unique() == every.len():
        return []
    rows = [
        pl.DataFrame({"recording": each.report.recordings}).with_columns(
            number=pl.lit(number, pl.Int64)
        )
        for number, each in partitions.items()
    ]
    empty = pl.DataFrame(schema={"recording": pl.String, "number": pl.Int64})
    shared = (
        pl.concat([empty, *rows])
        .group_by("recording")
        .agg("number")
        .filter(pl.col("number").list.len() > 1)
    )
    parent = {number: number for number in partitions}

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    for first, *others in shared.get_column("number").to_list():
        for other in others:
            parent[root(other)] = root(first)
    groups: dict[int, list[int]] = {}
    for number in partitions:
        groups.setdefault(root(number), []).append(number)
    return [group for group in groups.values() if len(group) > 1]


def _without_dependents(
    settings: Settings, gathered: Sequence[Gathered], earlier: EarlierStores
) -> tuple[EarlierStores, ArchiveContext | None]:
    """Exclude the rows of earlier stores that depend on gathered partitions.

    Returns the stores without these rows, and the facts about the archive. The facts are None if a
    gathered recording still has rows in the stores: its other files must be gathered first.
    """
    none = pl.Series("recording", dtype=pl.String)
    recordings = pl.concat([none, *(each.report.recordings for each in gathered)])
    extended = earlier.without(earlier.files_of(recordings))
    if extended.rescored != earlier.rescored:
        return extended, None
    context = _archive_context(settings, gathered, extended)
    servers = affected_servers(gathered, extended)
    affected = extended.affected_recordings(context, servers, settings.work / "spool")
    return extended.without(extended.files_of(affected)), context


def affected_servers(gathered: Sequence[Gathered], earlier: EarlierStores) -> set[str | None]:
    """Return the servers about which the facts differ between this run and the earlier stores."""
    return {name for each in gathered for name in each.report.servers} | earlier.changed_servers()


def stored_summaries(work: Path, numbers: Iterable[int]) -> StoredSummaries:
    """Return the summaries that workers have stored for the partitions with these numbers."""
    return StoredSummaries(work / SUMMARIES, [f"{number:06d}" for number in numbers])


def _archive_context(
    settings: Settings, gathered: Sequence[Gathered], earlier: EarlierStores | None
) -> ArchiveContext:
    """Return the archive's facts about all tools, and about the servers that this run affects."""
    numbers = sorted(each.partition.number for each in gathered)
    summaries = [stored_summaries(settings.work, numbers)]
    if earlier is not None:
        summaries += earlier.summaries(affected_servers(gathered, earlier))
    return ArchiveContext(summaries, settings.work / "spool")
