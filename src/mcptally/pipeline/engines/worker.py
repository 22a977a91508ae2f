"""Implements a worker's steps: gather a partition, keep it in memory or on disk, and finish it.

The steps depend only on their arguments. `PartitionWorker` runs them in one process and keeps
gathered partitions in between; Dask tasks (`dask_tasks`) call the same functions.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import polars as pl

from mcptally.messages.event_spool import Slicing
from mcptally.pipeline.partition import GatheredPartition, finish, gather_slices
from mcptally.pipeline.partition_summary import KINDS, PartitionSummary, summary_frames
from mcptally.pipeline.scoring import ScoringRules
from mcptally.pipeline.selection import EVERYTHING, Selection
from mcptally.store import parts
from mcptally.store.manifest import SUMMARIES
from mcptally.store.parts import PartWriter, Written
from mcptally.store.source_files import SourceFile, file_state, source_of
from mcptally.tables.all_tables import TABLES
from mcptally.tables.calls import Calls
from mcptally.tables.findings import Findings
from mcptally.tables.mapped_tables import MappedTables
from mcptally.tables.recordings import Recordings
from mcptally.transcript.files import Span

_FRAMES: Final = tuple(
    name
    for name in GatheredPartition.__struct_fields__
    if name not in {"summary", "left_out", "mapped"}
)
_SUMMARY_FRAMES: Final = PartitionSummary.__struct_fields__


class Partition(msgspec.Struct, frozen=True):
    """Files that are gathered together, and which of their calls are selected."""

    number: int
    files: Sequence[Path]
    size: int
    """Approximate size in bytes of transcript."""
    selection: Selection = EVERYTHING
    chunk: int = sys.maxsize
    """Memory limit in bytes; a larger partition is divided into slices of whole recordings."""
    names: Sequence[str] = ()
    """Names for the files in tables and findings; if empty, their paths are used."""
    span: Span | None = None
    """The part of a single file that forms the partition; None for whole files."""


class SavedSlices(msgspec.Struct, frozen=True):
    """A partition that was gathered in slices of whole recordings, each saved in a folder."""

    folders: Sequence[Path]


class GatherReport(msgspec.Struct, frozen=True):
    """The facts about a gathered partition that the run needs immediately."""

    recordings: pl.Series
    """Ids of the partition's recordings, each once."""
    sources: list[SourceFile]
    """The records of the partition's files, as they were when they were read."""
    servers: list[str | None]
    """Labels of the partition's servers, each once."""
    left_out: int
    """Number of unselected calls in the partition's recordings."""


class FinishSettings(msgspec.Struct, frozen=True):
    """The settings for finishing partitions, which are the same for a whole run."""

    judging: ScoringRules
    payloads: bool
    """Whether to keep arguments, responses and the responses' text."""


def gather_files(
    partition: Partition, folder: Path
) -> tuple[GatheredPartition | SavedSlices, GatherReport, Mapping[str, pl.DataFrame]]:
    """Gather the files of a partition.

    Args:
        partition: the files, and how to gather them.
        folder: a folder to create for slices.

    Returns:
        The partition, its report for the run, and its summary, as a map of kinds to rows.
    """
    files = partition.files
    names = partition.names or [str(path) for path in files]
    states = [file_state(path) for path in files]
    mapped = MappedTables(folder.parent)
    slicing = Slicing(folder / "events", partition.chunk, partition.size, mapped)
    recordings: list[pl.Series] = []
    servers: dict[str | None, None] = {}
    summary: Mapping[str, pl.DataFrame] = {}
    folders: list[Path] = []
    left_out = 0
    slices = gather_slices(files, names, partition.selection, slicing, partition.span)
    for part in slices.parts:
        # Copy, because a slice would keep the frame's whole text buffer in memory.
        ids, labels = (
            part.recordings.get_column(each.name).to_list()
            for each in (Recordings.recording, Recordings.server)
        )
        recordings.append(pl.Series("recording", ids))
        servers |= dict.fromkeys(labels)
        summary = summary_frames(part.summary, part.calls)
        left_out += part.left_out
        if slices.several:
            folders.append(folder / f"{len(folders):04d}")
            save(folders[-1], part)
            # Write the slice to a file, because its frames would keep the texts of all calls in
            # memory.
            (slicing.folder / SUMMARIES).mkdir(parents=True, exist_ok=True)
            parts.write_summary(slicing.folder, folders[-1].name, summary)
            del part, summary  # free the slice before the next slice is gathered
    if folders:
        summary = {
            kind: pl.read_parquet(slicing.folder / SUMMARIES / kind / "*.parquet") for kind in KINDS
        }
        shutil.rmtree(slicing.folder)
    sources = [
        msgspec.structs.replace(
            source_of(path, state, slices.digests),
            file=name,
            unread=round(tally.share, 6),
            fault=tally.fault,
        )
        for path, state, name, tally in zip(files, states, names, slices.tallies, strict=True)
    ]
    report = GatherReport(pl.concat(recordings), sources, [*servers], left_out)
    return SavedSlices(folders) if folders else part, report, summary


_LONG_TEXTS: Final = ("response", "structured_content", "arguments", "text", "first_text")
"""Columns with the texts that make up most of a partition; many of their values are equal."""


def pack(part: GatheredPartition) -> GatheredPartition:
    """Store each distinct long text of a partition only once, which halves the partition's size.

    A large recording stays as it is, because its texts are in files.
    """
    if part.mapped.is_large:
        return part
    categories = pl.Categorical(pl.Categories.random())
    calls = part.calls.with_columns(pl.col(_LONG_TEXTS).cast(categories))
    return msgspec.structs.replace(part, calls=calls)


def unpack(part: GatheredPartition) -> GatheredPartition:
    """Restore a partition that `pack` returned."""
    packed = [part.calls.get_column(name) for name in _LONG_TEXTS]
    calls = part.calls.with_columns(_strings(each) for each in packed if each.dtype != pl.String)
    return msgspec.structs.replace(part, calls=calls)


def _strings(texts: pl.Series) -> pl.Series:
    """Convert a Categorical column to String, with each distinct text in memory only once.

    A cast would copy the text for every row.
    """
    distinct = texts.drop_nulls().unique()
    codes = distinct.to_physical().to_numpy()
    row = np.zeros(codes.max(initial=0) + 1, np.uint32)
    row[codes] = np.arange(codes.size, dtype=np.uint32)
    rows = pl.Series(row).gather(texts.to_physical())
    return distinct.cast(pl.String).gather(rows).alias(texts.name)


def save(folder: Path, part: GatheredPartition) -> None:
    """Write a gathered partition into a new folder."""
    folder.mkdir(parents=True)
    part = pack(part)
    frames = {name: getattr(part, name) for name in _FRAMES}
    frames |= {name: getattr(part.summary, name) for name in _SUMMARY_FRAMES}
    for name, frame in frames.items():
        frame.write_ipc(folder / f"{name}.arrow", compression="lz4")


def load(folder: Path) -> GatheredPartition:
    """Read the partition that `save` wrote into a folder.

    Raises:
        OSError: the file or folder is missing.
    """
    frames = {
        name: pl.scan_ipc(folder / f"{name}.arrow", glob=False).collect()
        for name in (*_FRAMES, *_SUMMARY_FRAMES)
    }
    summary = PartitionSummary(**{name: frames.pop(name) for name in _SUMMARY_FRAMES})
    calls, messages, findings, recordings = (frames[name] for name in _FRAMES)
    part = GatheredPartition(calls, messages, findings, recordings, summary)
    return unpack(part)


def load_saved(folder: Path) -> GatheredPartition | SavedSlices:
    """Read the partition that was saved in a folder, or find its slices.

    Raises:
        OSError: the file or folder is missing.
    """
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    return SavedSlices(folders) if folders else load(folder)


def _slices(part: GatheredPartition | SavedSlices) -> Iterator[GatheredPartition]:
    """Yield the slices of a partition, or the partition itself if it has no slices."""
    if isinstance(part, GatheredPartition):
        yield part
        return
    for folder in part.folders:
        yield load(folder)


def finish_and_write(
    work: Path,
    number: int,
    part: GatheredPartition | SavedSlices,
    context: PartitionSummary,
    settings: FinishSettings,
) -> Written:
    """Finish a partition and write its tables into the folder `work`; return the row counts."""
    rows = dict.fromkeys((table.name for table in TABLES), 0)
    outcomes: dict[str, int] = {}
    broken = 0
    with PartWriter(work, f"{number:06d}") as writer:
        for each in _slices(part):
            tables = finish(each, context, settings.judging, payloads=settings.payloads)
            del each  # free the slice before the next slice is loaded
            for outcome, count in tables[Calls].group_by("outcome").len().iter_rows():
                outcomes[outcome] = outcomes.get(outcome, 0) + count
            broken += tables[Findings].filter(about="file", severity="error").height
            for table in [*tables]:
                rows[table.name] += writer.write(table, tables.pop(table))
    return Written(rows, outcomes, broken)


class PartitionWorker:
    """Gathers and finishes partitions in this process, and keeps them between the two steps.

    The latest partition stays unpacked. Earlier partitions stay in memory in packed form, up to
    `memory` bytes of transcript; further partitions are written to the work folder.
    """

    def __init__(self, work: Path, memory: int = 0) -> None:
        self.work = work
        self.memory = memory
        self.latest: tuple[int, int, GatheredPartition] | None = None
        """The partition gathered last: its number, its bytes of transcript, and its content."""
        self.packed: dict[int, tuple[int, GatheredPartition]] = {}
        """Maps the number of each packed partition to its bytes of transcript and its content."""
        self.settings: FinishSettings | None = None

    def gather(self, partition: Partition) -> GatherReport:
        """Gather a partition and keep it; return the report about it."""
        self._put_away()
        number = partition.number
        part, report, summary = gather_files(partition, self._folder(number))
        parts.write_summary(self.work, f"{number:06d}", summary)
        if isinstance(part, GatheredPartition):
            self.latest = (number, partition.size, part)
        return report

    def _put_away(self) -> None:
        """Pack the latest partition, or write it to the work folder, to free memory."""
        if self.latest is None:
            return
        number, size, part = self.latest
        self.latest = None
        size = 0 if part.mapped.is_large else size
        if not size or sum(kept for kept, _ in self.packed.values()) + size <= self.memory:
            self.packed[number] = (size, pack(part))
        else:
            save(self._folder(number), part)

    def discard(self, number: int) -> None:
        """Delete a gathered partition."""
        if self.latest is not None and self.latest[0] == number:
            self.latest = None
        elif self.packed.pop(number, None) is None:
            shutil.rmtree(self._folder(number))

    def configure(self, settings: FinishSettings) -> None:
        """Store the settings that `finish` uses from now on."""
        self.settings = settings

    def finish(self, number: int, context: PartitionSummary) -> Written:
        """Finish a gathered partition and write its tables; return the row counts."""
        assert self.settings is not None  # noqa: S101  (`configure` is always called before)
        part = self._take(number)
        written = finish_and_write(self.work, number, part, context, self.settings)
        shutil.rmtree(self._folder(number), ignore_errors=True)
        return written

    def _folder(self, number: int) -> Path:
        return self.work / "spool" / f"{number:06d}"

    def _take(self, number: int) -> GatheredPartition | SavedSlices:
        if self.latest is not None and self.latest[0] == number:
            part, self.latest = self.latest[2], None
            return part
        kept = self.packed.pop(number, None)
        if kept is not None:
            return unpack(kept[1])
        return load_saved(self._folder(number))
