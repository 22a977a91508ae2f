"""Which files are worked on together: partitions of about a size, no recording torn apart."""

import concurrent.futures
import functools
import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from mcptally.errors import McptallyError, UsageError
from mcptally.messages.memory_budget import GROWTH, PROCESS
from mcptally.transcript import remote
from mcptally.transcript.discover import PassedOver, discover
from mcptally.transcript.files import BROKEN, expansion, open_stream

PARTITION: Final = 120 << 20
"""Bytes of transcript that a partition holds at most, unless one group of files is larger."""

ALONE: Final = 2 * PARTITION
"""The same where one process works alone: it has the memory of two, and each partition costs a
third of a second whatever it holds."""

WORTHWHILE: Final = 16 << 20
"""Bytes of transcript below which another process costs more than it brings."""

_USUAL_EXPANSION: Final = 8
"""How much a compressed transcript grows, at least: real ones shrink by 5 to 10, and to a fortieth
where calls repeat."""

_SMALL: Final = 1 << 14
"""Bytes of a compressed file below which it is not looked at for how well it is packed."""

_HEAD_LIMIT: Final = 1 << 16
"""Bytes within which the first event of a file must end to be known: an `open` is far smaller."""

_AT_A_TIME: Final = 16
"""Files behind URLs whose first bytes are asked for together."""


def limit_of(jobs: int) -> int:
    """Bytes of transcript a partition holds at most if nobody says, where `jobs` processes work."""
    return ALONE if jobs == 1 else PARTITION


def held_of(limit: int) -> int:
    """Bytes of transcript whose partitions wait in memory, in all processes together.

    More wait on disk. What waits takes twice its bytes, which `GROWTH` leaves room for.
    """
    return limit * 4 // 5


def jobs_of(memory: int, cores: int) -> int:
    """How many processes, one a core at most, can share `memory` bytes and work well."""
    return max(1, min(cores, memory // (PROCESS + GROWTH * WORTHWHILE)))


def partition_of(memory: int, jobs: int = 1) -> int:
    """Bytes of transcript a partition may hold where `jobs` processes share `memory` bytes.

    Raises:
        UsageError: that is too little memory for so many processes.
    """
    each = memory // jobs - PROCESS
    least = jobs * (PROCESS + (GROWTH << 20))
    if each < GROWTH << 20:
        raise UsageError(
            f"--memory {memory >> 20}M is too little for {jobs} process(es): at least "
            f"{math.ceil(least / (1 << 20))}M, or fewer --jobs"
        )
    return each // GROWTH


def plan(files: Sequence[Path], *, limit: int = PARTITION, jobs: int = 1) -> list[list[Path]]:
    """Files that belong together, about `limit` bytes of transcript at a time, largest first.

    Files whose first event is of the same recording are its segments and stay together. As many
    partitions as `jobs`, or a multiple, are made where there is work for them.
    """
    families: dict[str, list[Path]] = {}
    for path, head in zip(files, _heads(files), strict=True):
        families.setdefault(head or str(path), []).append(path)
    weights = [sum(map(weight, family)) for family in families.values()]
    total = sum(weights)
    parts = max(1, math.ceil(total / limit), min(jobs, total // WORTHWHILE))
    if parts > 1:
        parts = math.ceil(parts / jobs) * jobs
    bins: list[tuple[int, int, list[Path]]] = [(0, number, []) for number in range(parts)]
    for size, family in sorted(zip(weights, families.values(), strict=True), reverse=True):
        filled, number, paths = bins[0]
        heapq.heapreplace(bins, (filled + size, number, paths + family))
    return [sorted(paths) for _, _, paths in sorted(bins, reverse=True) if paths]


def found(
    paths: Iterable[str | Path], passed_over: Callable[[PassedOver], Any] = lambda _: None
) -> list[Path]:
    """The transcript files that `paths` name, here (`finding.discover`) or behind URLs.

    `passed_over` is told what in a folder has a transcript's name and is not read.

    Raises:
        UnreadableError: a path or URL names nothing that can be read.
        UsageError: what the protocol of a URL takes is not installed.
        McptallyError: a URL cannot be reached.
    """
    named = list(paths)
    urls = [path for path in named if isinstance(path, str) and remote.is_url(path)]
    here = [path for path in named if path not in urls]
    files = discover(here, passed_over) if here or not urls else []
    return sorted({*files, *(file for url in urls for file in remote.discover(url))}, key=str)


def weight(path: Path) -> int:
    """Bytes of transcript that a file holds, unpacked, about; 0 of one that is gone."""
    try:
        about = path.stat()
    except OSError:
        return 0  # said when the file is read
    if path.suffix == ".jsonl":
        return about.st_size
    if about.st_size < _SMALL or remote.is_remote(path):
        return about.st_size * _USUAL_EXPANSION
    return int(about.st_size * _expansion(path, about.st_size, about.st_mtime_ns))


@functools.lru_cache(1 << 16)
def _expansion(path: Path, size: int, mtime_ns: int) -> float:
    """How many times its size a file unpacks to that was found with this size and time."""
    del size, mtime_ns  # another file has others
    try:
        found = expansion(path)
    except (McptallyError, *BROKEN):
        return _USUAL_EXPANSION  # said when the file is read
    return 1 if found is None else max(found, _USUAL_EXPANSION)


def _heads(files: Sequence[Path]) -> list[str | None]:
    """The first recording of each file; those behind URLs are asked for many at a time."""
    if not any(isinstance(path, remote.RemoteFile) for path in files):
        return [first_recording(path) for path in files]
    with concurrent.futures.ThreadPoolExecutor(_AT_A_TIME) as pool:
        return list(pool.map(first_recording, files))


class _Head(msgspec.Struct):
    recording: str


def first_recording(path: Path) -> str | None:
    """The recording of a file's first event; None if its first line is none, or cannot be read."""
    try:
        with open_stream(path) as stream:
            line, _, _ = stream.read(_HEAD_LIMIT).partition(b"\n")
            return msgspec.json.decode(line, type=_Head).recording
    except (McptallyError, ValueError, RecursionError, *BROKEN):
        return None  # said when the file is read
