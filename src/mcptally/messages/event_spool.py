"""Stores a large partition's decoded events in files, divided into shares by recording.

chunks of decoded tables → files per share → the tables of one share at a time

All events of a recording are in the same share, so each share can be scored separately.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.messages.event_tables import DecodedMessages, Event
from mcptally.messages.memory_budget import memory_of_lines
from mcptally.tables.mapped_tables import MappedTables

MARGIN: Final = 1.6
"""Factor by which the number of shares exceeds the minimum: shares differ in size, and the process
retains some memory from one share to the next."""


class Slicing(msgspec.Struct, frozen=True):
    """Whether and where to divide a partition's events by recording."""

    folder: Path
    """Folder to create for the files with the events."""
    chunk: int
    """Maximum memory in bytes for scoring a chunk of lines."""
    size: int
    """Approximate total size of the transcript files in bytes."""
    mapped: MappedTables
    """Takes the tables of a large recording, which is not divided."""


class EventSpool:
    """Stores decoded tables in files.

    There is one file per combination of chunk, share of the recordings, and table.
    """

    def __init__(self, slicing: Slicing, *, limit: int, read: int) -> None:
        """Create the folder, and choose the number of shares.

        Args:
            slicing: the partition's folder and size.
            limit: maximum memory in bytes for scoring a share.
            read: number of transcript bytes in the first chunk.
        """
        slicing.folder.mkdir(parents=True)
        self.folder = slicing.folder
        self.mapped = slicing.mapped
        self.limit = limit
        self.shares = max(2, math.ceil(MARGIN * slicing.size / read))
        self.chunks: list[int] = []
        """For each chunk, the number of shares into which it is divided."""
        self.written: set[tuple[int, int]] = set()
        """Pairs of a chunk and a share for which files were written."""
        self.lines = np.zeros(self.shares)
        """For each share, its number of events."""
        self.bytes = np.zeros(self.shares)
        """For each share, its approximate number of transcript bytes."""

    def add(self, tables: Mapping[str, pl.DataFrame], size: int) -> None:
        """Write the tables of a chunk to files, one per share and table.

        Tables without a column `recording` refer to the `row` of a message in the same chunk.

        Args:
            tables: maps table names to tables.
            size: number of transcript bytes from which the tables were decoded.
        """
        sizes = np.zeros(self.shares)
        for name, frame in tables.items():
            numbers = _share_numbers(frame, tables["messages"], self.shares)
            for share in range(self.shares):
                part = frame.filter(numbers == share)
                if part.height:
                    part.write_ipc(self._file(len(self.chunks), share, name), compression="lz4")
                    self.written.add((len(self.chunks), share))
                    sizes[share] += part.estimated_size()
                    self.lines[share] += part.height * _has_recordings(frame)
        self.bytes += size * sizes / max(1, sizes.sum())
        self.chunks.append(self.shares)
        # If compressed files were larger than assumed, the estimate was too low: double the number
        # of shares.
        while self.memory_of_shares().mean() > self.limit:
            self.shares *= 2
            self.lines, self.bytes = (np.tile(each / 2, 2) for each in (self.lines, self.bytes))

    def memory_of_shares(self) -> npt.NDArray[np.float64]:
        """Return the approximate memory, in bytes, that scoring each share takes."""
        return memory_of_lines(self.lines, self.bytes)

    def has(self, share: int) -> bool:
        """Return whether a share may contain events."""
        chunks = enumerate(self.chunks)
        return any((chunk, share % shares) in self.written for chunk, shares in chunks)

    def read(self, share: int, empty: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """Read the tables of a share, keyed by name.

        Args:
            share: the share's index.
            empty: maps the name of each table to an empty table.
        """
        chunks = [self._chunk(chunk, share, empty) for chunk in range(len(self.chunks))]
        return {name: pl.concat([each.pop(name) for each in chunks]) for name in empty}

    def _chunk(
        self, chunk: int, share: int, empty: Mapping[str, pl.DataFrame]
    ) -> dict[str, pl.DataFrame]:
        """Read the part of a share's tables that comes from one chunk."""
        shares = self.chunks[chunk]
        files = {name: self._file(chunk, share % shares, name) for name in empty}
        tables = {
            name: pl.scan_ipc(path, glob=False).collect() if path.exists() else empty[name]
            for name, path in files.items()
        }
        if shares == self.shares:
            return tables
        return {
            name: frame.filter(_share_numbers(frame, tables["messages"], self.shares) == share)
            for name, frame in tables.items()
        }

    def _file(self, chunk: int, share: int, name: str) -> Path:
        return self.folder / f"{chunk}-{share}-{name}.arrow"


def _has_recordings(frame: pl.DataFrame) -> bool:
    return Event.recording.name in frame.columns


def _share_numbers(frame: pl.DataFrame, messages: pl.DataFrame, shares: int) -> pl.Series:
    """Return each row's share: the hash of its recording modulo the number of shares."""
    share = (Event.recording.col.hash() % shares).alias("share")
    if not _has_recordings(frame):
        row = DecodedMessages.row.name
        of_messages = messages.select(row, share)
        return frame.select(row).join(of_messages, on=row, how="left", maintain_order="left")[
            "share"
        ]
    return frame.select(share).to_series()
