"""Combines the summaries of all partitions into facts about the archive, in bounded memory.

stored summaries → sums, first listings, a timeline → an excerpt for each partition

Memory grows with the number of servers, tools and changes to definitions, not with the number of
calls. The calls by minute, whose number grows with time, are spilled to disk above a certain size.
"""

import functools
import itertools
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from mcptally.messages.tool_definitions import (
    count_listings,
    listing_changes,
    relevant_listings,
    sum_listing_counts,
)
from mcptally.pipeline.partition_summary import (
    COUNTS,
    NEEDS,
    SUMMARY_TABLES,
    PartitionSummary,
    summed,
)
from mcptally.seeds.validation_protocol.calls import PREDICTION_COLUMNS
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Listings, Needs, Timeline
from mcptally.verdict import evidence

AT_A_TIME: Final = 8
"""Number of partitions whose summaries are read together."""

ROWS: Final = 500_000
"""Approximate maximum number of rows in memory for each kind of fact. Rows above this number are
read again when needed, or spilled to disk."""

_BY_SERVER: Final = ("combinations", "validations", "minutes", "forms")
"""Kinds of facts that affect only calls to the server that the fact is about."""

_SHARES: Final = 1 << 16
_SHARE: Final = (pl.struct("server", "tool").hash() % _SHARES).cast(pl.UInt32).alias("share")
"""Expression for the hash bucket to which a tool's listings belong."""

COMPACT_FROM: Final = 10_000
"""Number of rows below which `_CompactRows` does not merge its rows."""


class StoredSummaries(msgspec.Struct, frozen=True):
    """Selected rows from the stored summaries of some partitions."""

    folder: Path
    """The folder that contains a subfolder for each kind of rows."""
    parts: Sequence[str]
    dropped_of: Callable[[Sequence[str]], pl.DataFrame] | None = None
    """Function that returns the recordings (column `recording`) in the given parts that are not
    read; None reads all recordings."""
    servers: pl.DataFrame | None = None
    """The servers (column `server`) to read, for kinds of facts that are stored by server; None
    reads all servers."""
    dropped: pl.DataFrame | None = None
    """The recordings in `parts` that are not read; set in the summaries that `batches` yields."""

    def read(self, kind: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Read the selected rows of one kind, with the given columns (all by default)."""
        names = None if columns is None else [*columns]
        files = [self.folder / kind / f"{part}.parquet" for part in self.parts]
        rows = pl.read_parquet(files, columns=names, glob=False)
        if columns is None:
            rows = SUMMARY_TABLES[kind].select(rows)
        if not rows.height:
            return rows
        if self.servers is not None and kind in (*_BY_SERVER, NEEDS):
            rows = rows.join(self.servers, on="server", how="semi", nulls_equal=True)
        if self.dropped is not None and "recording" in rows.columns:
            rows = rows.join(self.dropped, on="recording", how="anti")
        return rows

    def batches(self) -> Iterator["StoredSummaries"]:
        """Split the summaries into groups of `AT_A_TIME` partitions."""
        for start in range(0, len(self.parts), AT_A_TIME):
            parts = self.parts[start : start + AT_A_TIME]
            dropped = self.dropped_of and self.dropped_of(parts)
            yield msgspec.structs.replace(self, parts=parts, dropped=dropped)


class ArchiveContext:
    """The facts about servers and tools in the whole archive."""

    def __init__(self, summaries: Iterable[StoredSummaries], spool: Path) -> None:
        """Read the summaries; write the facts that do not fit into memory to files in `spool`."""
        self.summaries = list(summaries)
        self.sums = {
            name: _CompactRows(functools.partial(_summed, counts))
            for name, counts in COUNTS.items()
            if name != "minutes"
        }
        self.calls_by_tool = _CompactRows(_by_tool)
        self.minutes = _SpilledRows(spool, "minute", lambda rows: summed([rows], COUNTS["minutes"]))
        self.validations = _SpilledRows(spool, "answered_ns", lambda rows: rows)
        self.definitions = _CompactRows(
            lambda rows: rows.lazy().unique("definition").sort("definition").pipe(run_query)
        )
        self.listed = _CompactRows(relevant_listings)
        self.sightings = _CompactRows(lambda rows: sum_listing_counts([rows]))
        self.timeline = self._read(_SpilledRows(spool, "share", lambda rows: rows))

    def _read(self, listings: "_SpilledRows") -> pl.DataFrame:
        """Read all summaries, adding their listings to `listings`, and return the timeline."""
        total = 0
        for batch in (batch for summaries in self.summaries for batch in summaries.batches()):
            listed = batch.read("listed")
            total += listed.height
            listings.add(listed.select(*Timeline.columns(), _SHARE))
            self.listed.add(listed)
            self.sightings.add(count_listings(listed))
            definitions = batch.read("definitions").lazy()
            here = definitions.join(listed.lazy(), on="definition", how="semi")
            self.definitions.add(here.pipe(run_query))
            for kind, rows in self.sums.items():
                rows.add(batch.read(kind))
            minutes = batch.read("minutes")
            self.calls_by_tool.add(_by_tool(minutes))
            self.minutes.add(minutes)
            self.validations.add(
                batch.read("validations")[list(PREDICTION_COLUMNS)].drop_nulls(
                    ["valid", "answered_ns"]
                )
            )
        # The timelines of tools are independent, so build them for one group of tools at a time.
        groups = -(-total // ROWS) or 1
        bounds = [group * _SHARES // groups for group in range(groups + 1)]
        return pl.concat(
            listing_changes(listings.between(first, end - 1))
            for first, end in itertools.pairwise(bounds)
        )

    def summary(self) -> PartitionSummary:
        """Return the facts from which the `tools` table and the findings about servers are made."""
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
        """Return only those facts on which the calls described by `needs` depend.

        Args:
            needs: `Needs` rows.
            own: definitions that were listed in the calls' own sessions.
        """
        servers = needs.select(Needs.server.col)
        tools = needs.select(Needs.server.col, Needs.tool.col)
        listed = _of_keys(self.timeline, tools)
        used = pl.concat([listed.get_column(Listings.definition.name), own])
        return PartitionSummary(
            listed,
            _of_keys(self.definitions.rows, used.to_frame("definition")),
            combinations=_of_keys(self.sums["combinations"].rows, servers),
            validations=_of_keys(self.validations.between(None, None), servers),
            shapes=self.sums["shapes"].rows[:0],
            minutes=evidence.keep_working_tools(self._minutes(needs), self.calls_by_tool.rows),
            forms=_of_keys(self.sums["forms"].rows, servers),
        )

    def _minutes(self, needs: pl.DataFrame) -> pl.DataFrame:
        """Return the `CallsByMinute` rows within one minute of a need of the same server."""
        at = needs.lazy().select("server", "minute").unique()
        near = pl.concat([at.with_columns(Needs.minute.col + step) for step in (-1, 0, 1)])
        minute = Needs.minute.col
        span = needs.select(first=minute.min() - 1, last=minute.max() + 1).row(0)
        rows = self.minutes.between(*span).lazy()
        query = rows.join(near, on=["server", "minute"], how="semi", nulls_equal=True)
        return query.pipe(run_query)


class _CompactRows:
    """Rows that are merged by the function `compact` whenever their number has doubled."""

    def __init__(self, compact: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
        self.compact = compact
        self.frames: list[pl.DataFrame] = []
        self.size = 0
        """Number of rows after they were last merged."""

    def add(self, rows: pl.DataFrame) -> None:
        self.frames.append(self.compact(rows))
        if sum(frame.height for frame in self.frames) > 2 * max(self.size, COMPACT_FROM):
            self.size = self.rows.height

    @property
    def rows(self) -> pl.DataFrame:
        """Return all rows, merged."""
        if len(self.frames) > 1:
            self.frames = [self.compact(pl.concat(self.frames))]
        return self.frames[0]


class _SpilledRows:
    """Merged rows: up to `ROWS` are in memory, and the others on disk, sorted by `order`."""

    def __init__(
        self, folder: Path, order: str, compact: Callable[[pl.DataFrame], pl.DataFrame]
    ) -> None:
        self.folder = folder
        self.order = order
        self.in_memory = _CompactRows(compact)
        self.files: list[Path] = []

    def add(self, rows: pl.DataFrame) -> None:
        self.in_memory.add(rows)
        waiting = sum(frame.height for frame in self.in_memory.frames)
        if waiting > ROWS and self.in_memory.rows.height > ROWS // 2:
            path = self.folder / f"{self.order}-{secrets.token_hex(4)}.parquet"
            self.folder.mkdir(parents=True, exist_ok=True)
            written = self.in_memory.rows.sort(self.order)
            written.write_parquet(path, compression="zstd", row_group_size=ROWS // 20)
            self.files.append(path)
            self.in_memory = _CompactRows(self.in_memory.compact)
            self.in_memory.add(written.clear())

    def between(self, first: int | None, last: int | None) -> pl.DataFrame:
        """Return the rows whose value in the column `order` is between `first` and `last`.

        Returns all rows if both bounds are None, or if no row was spilled.
        """
        if not self.files:
            return self.in_memory.rows
        rows = pl.concat([self.in_memory.rows.lazy(), pl.scan_parquet(self.files, glob=False)])
        if first is not None and last is not None:
            rows = rows.filter(pl.col(self.order).is_between(first, last))
        return rows.collect()


def _summed(counts: Sequence[str], rows: pl.DataFrame) -> pl.DataFrame:
    return summed([rows], counts)


def _by_tool(minutes: pl.DataFrame) -> pl.DataFrame:
    """Return the numbers of calls and of failed calls to each tool."""
    return minutes.group_by("server", "tool").agg(pl.col("calls", "failed").sum())


def _of_keys(rows: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    if not rows.height:
        return rows
    return rows.join(keys, on=keys.columns, how="semi", nulls_equal=True)
