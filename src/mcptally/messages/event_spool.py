"""Stores a large partition's decoded events in files, divided by recording into shares.

    chunks of decoded tables → files per share → the tables of one share at a time

A recording's events are all in the same share, so each share can be scored separately.
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

MARGIN: Final = 1.6
"""Factor by which the number of shares exceeds the minimum, because shares differ in size and the
process retains some memory from one share to the next."""


class Slicing(msgspec.Struct, frozen=True):
    """When to divide a partition's events by recording, and where to store them."""

    folder: Path
    """Folder to create for the files."""
    chunk: int
    """Maximum bytes of memory for scoring a chunk of lines."""
    size: int
    """Approximate total size of the transcript files in bytes."""


class EventSpool:
    """Stores decoded tables in files.

    There is one file per chunk, share of the recordings and table.
    """

    def __init__(self, slicing: Slicing, *, limit: int, read: int) -> None:
        """Create the folder.

        Args:
            slicing: the partition's folder and size.
            limit: maximum bytes of memory for scoring a share.
            read: transcript bytes in the first chunk.
        """
        slicing.folder.mkdir(parents=True)
        self.folder = slicing.folder
        self.limit = limit
        self.shares = max(2, math.ceil(MARGIN * slicing.size / read))
        self.chunks: list[int] = []
        """Number of shares in each chunk."""
        self.written: set[tuple[int, int]] = set()
        """(chunk, share) pairs for which files were written."""
        self.lines = np.zeros(self.shares)
        """Number of events in each share."""
        self.bytes = np.zeros(self.shares)
        """Approximate number of transcript bytes in each share."""

    def add(self, tables: Mapping[str, pl.DataFrame], size: int) -> None:
        """Write a chunk: the tables, by name, from `size` bytes of transcript.

        Tables without a column `recording` refer to the `row` of a message in the same chunk.
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
        # If compressed files were larger than assumed, the estimate was too low: double the shares.
        while self.memory_of_shares().mean() > self.limit:
            self.shares *= 2
            self.lines, self.bytes = (np.tile(each / 2, 2) for each in (self.lines, self.bytes))

    def memory_of_shares(self) -> npt.NDArray[np.float64]:
        """Return the approximate bytes of memory needed to score each share."""
        return memory_of_lines(self.lines, self.bytes)

    def has(self, share: int) -> bool:
        """Return whether a share may contain events."""
        chunks = enumerate(self.chunks)
        return any((chunk, share % shares) in self.written for chunk, shares in chunks)

    def read(self, share: int, empty: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """Return the tables of a share.

        Args:
            share: the share's number, from 0.
            empty: table name → empty table.
        """
        chunks = [self._chunk(chunk, share, empty) for chunk in range(len(self.chunks))]
        return {name: pl.concat([each.pop(name) for each in chunks]) for name in empty}

    def _chunk(
        self, chunk: int, share: int, empty: Mapping[str, pl.DataFrame]
    ) -> dict[str, pl.DataFrame]:
        """Return one chunk's tables for a share."""
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
    """Return each row's share: a hash of its recording modulo the number of shares."""
    share = (Event.recording.col.hash() % shares).alias("share")
    if not _has_recordings(frame):
        row = DecodedMessages.row.name
        of_messages = messages.select(row, share)
        return frame.select(row).join(of_messages, on=row, how="left", maintain_order="left")[
            "share"
        ]
    return frame.select(share).to_series()
