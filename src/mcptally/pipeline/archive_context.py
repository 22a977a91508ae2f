"""What the whole archive knows, put together from the notes of its partitions in bounded memory.

    notes of partitions → sums, first sights, a timeline → an excerpt for each partition

What stays in memory grows with servers, tools and how often they change, not with how often they
are called; what grows with time (calls by minute) goes to disk above a size.
"""

import dataclasses
import functools
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from mcptally.messages.tool_definitions import (
    TIMELINE,
    relevant_listings,
    sightings,
    sum_sightings,
    timeline,
)
from mcptally.pipeline.partition_summary import COUNTS, NEEDS, PartitionSummary, summed
from mcptally.seeds.stages import PREDICTION_COLUMNS
from mcptally.verdict import evidence

AT_A_TIME: Final = 8
"""Partitions whose notes are read together."""

ROWS: Final = 500_000
"""Rows of a kind that are kept in memory, about; more are read again, or put on disk."""

_BY_SERVER: Final = ("combinations", "validations", "minutes", "forms")
"""Kinds of knowledge that only calls of the same server are judged by, row by row."""

OFTEN: Final = 10_000
"""Rows below which it does not pay to make them fewer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Noted:
    """Where the notes of some partitions lie, and of whom they count."""

    folder: Path
    """Has a folder of files for each kind."""
    parts: Sequence[str]
    live: pl.DataFrame | None = None
    """The recordings that count; None: all."""
    servers: pl.DataFrame | None = None
    """Servers of which the kinds that are by server are read; None: all."""

    def read(self, kind: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Rows of one kind that count."""
        files = [self.folder / kind / f"{part}.parquet" for part in self.parts]
        rows = pl.read_parquet(files, columns=None if columns is None else [*columns], glob=False)
        if self.servers is not None and kind in (*_BY_SERVER, NEEDS):
            rows = rows.join(self.servers, on="server", how="semi", nulls_equal=True)
        if self.live is not None and "recording" in rows.columns:
            rows = rows.join(self.live, on="recording", how="semi")
        return rows

    def by_few(self) -> Iterator["Noted"]:
        """The same, some partitions at a time."""
        for start in range(0, len(self.parts), AT_A_TIME):
            yield dataclasses.replace(self, parts=self.parts[start : start + AT_A_TIME])


class ArchiveContext:
    """What all know together."""

    def __init__(self, noted: Iterable[Noted], folder: Path) -> None:
        """Read the notes; what does not fit into memory goes to `folder`, into files of its own."""
        self.noted = list(noted)
        self.sums = {
            name: _Few(functools.partial(_summed, counts))
            for name, counts in COUNTS.items()
            if name != "minutes"
        }
        self.works = _Few(_working)
        self.minutes = _Pile(folder, "minute", lambda rows: summed([rows], COUNTS["minutes"]))
        self.validations = _Pile(folder, "answered_ns", lambda rows: rows)
        self.definitions = _Few(lambda rows: rows.unique("definition").sort("definition"))
        self.listed = _Few(relevant_listings)
        self.seen = _Few(lambda rows: sum_sightings([rows]))
        self.timeline = self._read()

    def _read(self) -> pl.DataFrame:
        """All notes once; gives the timeline, for which many have to be read again."""
        waiting: list[pl.DataFrame] = []
        total = 0
        for few in (few for noted in self.noted for few in noted.by_few()):
            listed = few.read("listed")
            self.listed.add(listed)
            self.seen.add(sightings(listed))
            here = listed.select("definition").unique()
            self.definitions.add(few.read("definitions").join(here, on="definition", how="semi"))
            for name, total_of in self.sums.items():
                total_of.add(few.read(name))
            minutes = few.read("minutes")
            self.works.add(_working(minutes))
            self.minutes.add(minutes)
            self.validations.add(
                few.read("validations")
                .select(PREDICTION_COLUMNS)
                .drop_nulls(["valid", "answered_ns"])
            )
            total += listed.height
            if total <= ROWS:
                waiting.append(listed.select(TIMELINE))
            else:
                waiting.clear()
        if total <= ROWS:
            return timeline(pl.concat(waiting))
        # Where one server ends and another begins does not matter, so they are taken in turns.
        turns = -(-total // ROWS)
        return pl.concat([timeline(self._listed(turn, turns)) for turn in range(turns)])

    def _listed(self, turn: int, turns: int) -> pl.DataFrame:
        mine = pl.struct("server", "tool").hash() % turns == turn
        return pl.concat(
            [
                few.read("listed", ("recording", *TIMELINE)).filter(mine).select(TIMELINE)
                for noted in self.noted
                for few in noted.by_few()
            ]
        )

    def whole(self) -> PartitionSummary:
        """What definitions and servers are judged by: of listings, those that tell something."""
        none = pl.DataFrame()
        return PartitionSummary(
            self.listed.rows,
            self.definitions.rows,
            combinations=none,
            validations=none,
            shapes=self.sums["shapes"].rows,
            minutes=none,
            forms=none,
        )

    def excerpt(self, needs: pl.DataFrame, own: pl.Series) -> PartitionSummary:
        """What decides about the calls that have these needs.

        Args:
            needs: `knowledge.needs` rows.
            own: definitions that were listed in their own sessions.
        """
        servers = needs.select("server").unique()
        tools = needs.select("server", "tool").unique()
        listed = _near(self.timeline, tools)
        used = pl.concat([listed.get_column("definition"), own]).unique()
        return PartitionSummary(
            listed,
            self.definitions.rows.filter(pl.col("definition").is_in(used.implode())),
            combinations=_near(self.sums["combinations"].rows, servers),
            validations=_near(self.validations.between(None, None), servers),
            shapes=self.sums["shapes"].rows.clear(),
            minutes=evidence.working(self._minutes(needs), self.works.rows),
            forms=_near(self.sums["forms"].rows, servers),
        )

    def _minutes(self, needs: pl.DataFrame) -> pl.DataFrame:
        """Minutes of the same servers, and those beside them."""
        at = needs.select("server", "minute").unique()
        near = pl.concat([at.with_columns(pl.col("minute") + step) for step in (-1, 0, 1)])
        span = near.select(first=pl.col("minute").min(), last=pl.col("minute").max()).row(0)
        return _near(self.minutes.between(*span), near.unique())


class _Few:
    """Rows that are made fewer whenever they have doubled."""

    def __init__(self, fewer: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
        self.fewer = fewer
        self.waiting: list[pl.DataFrame] = []
        self.size = 0
        """Rows at the last time."""

    def add(self, rows: pl.DataFrame) -> None:
        self.waiting.append(self.fewer(rows))
        if sum(frame.height for frame in self.waiting) > 2 * max(self.size, OFTEN):
            self.size = self.rows.height

    @property
    def rows(self) -> pl.DataFrame:
        """Those that are left of all that were added."""
        if len(self.waiting) > 1:
            self.waiting = [self.fewer(pl.concat(self.waiting))]
        return self.waiting[0]


class _Pile:
    """Rows in the order of a column: in memory, and more of them in files."""

    def __init__(
        self, folder: Path, order: str, fewer: Callable[[pl.DataFrame], pl.DataFrame]
    ) -> None:
        self.folder = folder
        self.order = order
        self.few = _Few(fewer)
        self.files: list[Path] = []

    def add(self, rows: pl.DataFrame) -> None:
        self.few.add(rows)
        waiting = sum(frame.height for frame in self.few.waiting)
        if waiting > ROWS and self.few.rows.height > ROWS // 2:
            path = self.folder / f"{self.order}-{secrets.token_hex(4)}.parquet"
            self.folder.mkdir(parents=True, exist_ok=True)
            written = self.few.rows.sort(self.order)
            written.write_parquet(path, compression="zstd", row_group_size=ROWS // 20)
            self.files.append(path)
            self.few = _Few(self.few.fewer)
            self.few.add(written.clear())

    def between(self, first: int | None, last: int | None) -> pl.DataFrame:
        """Rows from the one to the other, and maybe more."""
        rows = self.few.rows
        if not self.files:
            return rows
        files = pl.scan_parquet(self.files, glob=False)
        if first is not None and last is not None:
            files = files.filter(pl.col(self.order).is_between(first, last))
        return pl.concat([rows, files.collect()])


def _summed(counts: Sequence[str], rows: pl.DataFrame) -> pl.DataFrame:
    return summed([rows], counts)


def _working(minutes: pl.DataFrame) -> pl.DataFrame:
    return minutes.group_by("server", "tool").agg(pl.col("calls", "failed").sum())


def _near(rows: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    return rows.join(keys, on=keys.columns, how="semi", nulls_equal=True)
