"""Sorts any number of items by time: sorts batches in memory and merges them from disk.

Spans, calls and HTTP entries are logged when they end, but transcripts contain requests and replies
in the order in which they were sent.
"""

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from mcptally.importers.items import Item

BATCH_BYTES: Final = 64 << 20
"""Maximum total size of items in memory, in bytes."""

MAX_RUN_FILES: Final = 64
"""Maximum number of sorted files on disk. When it is reached, all files are merged into one."""

_ENCODE: Final = msgspec.msgpack.Encoder()
_DECODE: Final = msgspec.msgpack.Decoder(Item)
_Key = tuple[int, int]


def sorted_by_time(items: Iterable[Item], *, batch: int = BATCH_BYTES) -> Iterator[Item]:
    """Yield the items in chronological order; an item without a time follows its predecessor."""
    held: list[tuple[_Key, bytes]] = []
    size = number = last = 0
    with tempfile.TemporaryDirectory(prefix="mcptally-") as folder:
        runs: list[Path] = []
        for item in items:
            last = last if item.at is None else item.at
            data = _ENCODE.encode(item)
            held.append(((last, number), data))
            number += 1
            size += len(data) + 100
            if size >= batch:
                held.sort()
                runs.append(_write(held, Path(folder) / f"{number}"))
                held, size = [], 0
            if len(runs) == MAX_RUN_FILES:
                whole = _write(heapq.merge(*map(_read, runs)), Path(folder) / f"{number}-merged")
                for run in runs:
                    run.unlink()
                runs = [whole]
        held.sort()
        streams = [_read(run) for run in runs]
        for _, data in heapq.merge(*streams, held) if streams else held:
            yield _DECODE.decode(data)


def _write(held: Iterable[tuple[_Key, bytes]], path: Path) -> Path:
    with path.open("wb") as file:
        for (at, number), data in held:
            file.write(b"%d %d %d\n" % (at, number, len(data)))
            file.write(data)
    return path


def _read(path: Path) -> Iterator[tuple[_Key, bytes]]:
    with path.open("rb") as file:
        while head := file.readline():
            at, number, size = map(int, head.split())
            yield (at, number), file.read(size)
