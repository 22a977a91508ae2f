"""One process's share of an archive: partitions it has gathered and finishes once all is known.

The steps are functions of their arguments (`read`, `keep`, `kept`, `judge`); `Share` is a process
that does them here, and holds what fits into memory in between.
"""

import contextlib
import dataclasses
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from mcptally.pipeline.partition import Gathered, finish, gather
from mcptally.pipeline.partition_summary import PartitionSummary, notes
from mcptally.pipeline.plan import weight
from mcptally.pipeline.scoring import Judging
from mcptally.store import files as store_files
from mcptally.tables.all_tables import TABLES
from mcptally.tables.calls import Calls
from mcptally.tables.findings import Findings

_SPOOLED: Final = ("calls", "messages", "findings", "recordings")
_LEARNED: Final = tuple(field.name for field in dataclasses.fields(PartitionSummary))


@dataclasses.dataclass(frozen=True, slots=True)
class Learned:
    """What gathering a partition brought to light, besides what it noted."""

    recordings: pl.Series
    """Their names, each once."""
    sources: list[store_files.Source]
    """Its files as they were when they were read."""
    servers: list[str | None]
    """The labels of its servers, each once."""


def read(files: Sequence[Path], names: Sequence[str]) -> tuple[Gathered, Learned]:
    """Gather a partition of `files`, which `names` call: itself, and what it brought to light."""
    looks = [store_files.look(path) for path in files]
    part = gather(files, names)
    sources = [
        dataclasses.replace(store_files.source_of(path, look), file=name)
        for path, look, name in zip(files, looks, names, strict=True)
    ]
    # Of its own: a column may be a view of all the texts that it was taken from.
    recordings = pl.Series("recording", part.recordings.get_column("recording").to_list())
    servers = part.recordings.get_column("server").unique().to_list()
    return part, Learned(recordings, sources, servers)


def note(work: Path, number: int, part: Gathered) -> None:
    """Write what a partition knows into the work folder, for all to be judged by."""
    with _draft(work) as draft:
        store_files.write_known(draft, f"{number:06d}", notes(part.learned, part.calls))


_LONG: Final = ("response", "structured_content", "arguments", "text", "first_text")
"""Columns of calls whose texts are most of a partition, and are often the same."""


def packed(part: Gathered) -> Gathered:
    """A partition that waits: each long text once, which is half of it on real traffic."""
    once = pl.Categorical(pl.Categories.random())
    return dataclasses.replace(part, calls=part.calls.with_columns(pl.col(_LONG).cast(once)))


def unpacked(part: Gathered) -> Gathered:
    """What `packed` was given."""
    return dataclasses.replace(part, calls=part.calls.with_columns(pl.col(_LONG).cast(pl.String)))


def keep(folder: Path, part: Gathered) -> None:
    """Put a gathered partition into a folder."""
    folder.mkdir(parents=True)
    part = packed(part)
    frames = {name: getattr(part, name) for name in _SPOOLED}
    frames |= {name: getattr(part.learned, name) for name in _LEARNED}
    for name, frame in frames.items():
        frame.write_ipc(folder / f"{name}.arrow", compression="lz4")


def kept(folder: Path) -> Gathered:
    """The partition that a folder holds.

    Raises:
        OSError: it is not there.
    """
    frames = {
        name: pl.scan_ipc(folder / f"{name}.arrow", glob=False).collect()
        for name in (*_SPOOLED, *_LEARNED)
    }
    learned = PartitionSummary(**{name: frames.pop(name) for name in _LEARNED})
    return unpacked(Gathered(**frames, learned=learned))


def judge(
    work: Path,
    number: int,
    part: Gathered,
    archive: PartitionSummary,
    judging: Judging,
    *,
    payloads: bool,
) -> store_files.Written:
    """Finish a partition, and write its tables into the work folder, whole or not at all."""
    tables = finish(part, archive, judging, payloads=payloads)
    rows = dict.fromkeys((table.name for table in TABLES), 0)
    with _draft(work) as draft:
        for table, frame in tables.items():
            rows[table.name] += store_files.write_part(draft, table, f"{number:06d}", frame)
    outcomes = dict(tables[Calls].group_by("outcome").len().iter_rows())
    broken = tables[Findings].filter(about="file", severity="error").height
    return store_files.Written(rows, outcomes, broken)


@contextlib.contextmanager
def _draft(work: Path) -> Iterator[Path]:
    """A folder whose parts are put into the work folder at the end, each in one step.

    A worker of a cluster may be taken for dead and go on: then two write the same part, and neither
    must ever be seen half written, nor make anew a work folder whose run is over.
    """
    draft = work / f"draft-{secrets.token_hex(4)}"
    draft.mkdir()
    try:
        yield draft
        for written in draft.rglob("*.parquet"):
            target = work / written.relative_to(draft)
            target.parent.mkdir(exist_ok=True)
            written.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


class Share:
    """Partitions on their way through one process: some in memory, more on disk.

    Those in memory are of `budget` bytes of transcript together, those on disk in the work folder.
    """

    def __init__(self, work: Path, budget: int = 0) -> None:
        self.work = work
        self.budget = budget
        self.held: dict[int, tuple[int, Gathered]] = {}
        self.settled: tuple[Judging, bool] | None = None

    def gather(self, number: int, files: Sequence[Path]) -> Learned:
        """Gather a partition and keep it."""
        part, learned = read(files, [str(path) for path in files])
        note(self.work, number, part)
        size = sum(map(weight, files))
        if sum(held for held, _ in self.held.values()) + size <= self.budget:
            self.held[number] = (size, packed(part))
        else:
            keep(self._folder(number), part)
        return learned

    def drop(self, number: int) -> None:
        """Forget a partition: its files are gathered again, with others."""
        if self.held.pop(number, None) is None:
            shutil.rmtree(self._folder(number))

    def settle(self, judging: Judging, payloads: bool) -> None:  # noqa: FBT001
        """What every partition is finished by."""
        self.settled = (judging, payloads)

    def finish(self, number: int, archive: PartitionSummary) -> store_files.Written:
        """Judge a partition and write its tables; `archive` is what all know of its tools."""
        assert self.settled is not None  # noqa: S101  (settle comes first, always)
        judging, payloads = self.settled
        return judge(self.work, number, self._take(number), archive, judging, payloads=payloads)

    def _folder(self, number: int) -> Path:
        return self.work / "spool" / f"{number:06d}"

    def _take(self, number: int) -> Gathered:
        held = self.held.pop(number, None)
        if held is not None:
            return unpacked(held[1])
        folder = self._folder(number)
        part = kept(folder)
        shutil.rmtree(folder)
        return part
