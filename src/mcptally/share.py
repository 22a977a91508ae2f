"""One process's share of an archive: partitions it has gathered and finishes once all is known."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from mcptally import store
from mcptally.partition import Gathered, Knowledge, finish, gather
from mcptally.plan import weight
from mcptally.schema import TABLES, Calls, Findings
from mcptally.scoring import Judging

HELD: Final = 192 << 20
"""Bytes of transcript whose partitions wait in memory, in all processes together."""

_SPOOLED: Final = ("calls", "messages", "findings", "recordings")


@dataclasses.dataclass(frozen=True, slots=True)
class Learned:
    """What gathering a partition brought to light."""

    recordings: list[str]
    knowledge: Knowledge
    sources: list[store.Source]


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """What finishing a partition put into the store."""

    rows: dict[str, int]
    outcomes: dict[str, int]
    broken: int


class Share:
    """Partitions on their way through one process: some in memory, more on disk."""

    def __init__(self, work: Path, budget: int = HELD) -> None:
        self.work = work
        self.budget = budget
        self.held: dict[int, tuple[int, Gathered]] = {}
        self.knowledge: dict[int, Knowledge] = {}
        self.settled: tuple[Knowledge, Judging, bool] | None = None

    def gather(self, number: int, files: Sequence[Path]) -> Learned:
        """Gather a partition and keep it."""
        part = gather(files, [str(path) for path in files])
        sources = [store.source_of(path) for path in files]
        self.knowledge[number] = part.learned
        size = sum(map(weight, files))
        if sum(held for held, _ in self.held.values()) + size <= self.budget:
            self.held[number] = (size, part)
        else:
            self._write(number, part)
        recordings = part.recordings.get_column("recording").to_list()
        return Learned(recordings, part.learned, sources)

    def drop(self, number: int) -> None:
        """Forget a partition: its files are gathered again, with others."""
        del self.knowledge[number]
        if self.held.pop(number, None) is None:
            shutil.rmtree(self._folder(number))

    def settle(self, archive: Knowledge, judging: Judging, payloads: bool) -> None:  # noqa: FBT001
        """What every partition is finished by."""
        self.settled = (archive, judging, payloads)

    def finish(self, number: int) -> Written:
        """Judge a partition and write its tables."""
        assert self.settled is not None  # noqa: S101  (settle comes first, always)
        archive, judging, payloads = self.settled
        part = self._take(number)
        tables = finish(part, archive, judging, payloads=payloads)
        rows = dict.fromkeys((table.name for table in TABLES), 0)
        for table, frame in tables.items():
            rows[table.name] += store.write_part(self.work, table, f"{number:06d}", frame)
        outcomes = dict(tables[Calls].group_by("outcome").len().iter_rows())
        broken = tables[Findings].filter(about="file", severity="error").height
        return Written(rows, outcomes, broken)

    def _folder(self, number: int) -> Path:
        return self.work / "spool" / f"{number:06d}"

    def _write(self, number: int, part: Gathered) -> None:
        target = self._folder(number)
        target.mkdir(parents=True)
        for name in _SPOOLED:
            frame: pl.DataFrame = getattr(part, name)
            frame.write_ipc(target / f"{name}.arrow", compression="lz4")

    def _take(self, number: int) -> Gathered:
        held = self.held.pop(number, None)
        if held is not None:
            return held[1]
        folder = self._folder(number)
        frames = {name: pl.read_ipc(folder / f"{name}.arrow") for name in _SPOOLED}
        shutil.rmtree(folder)
        return Gathered(**frames, learned=self.knowledge[number])
