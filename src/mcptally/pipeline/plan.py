"""Plans a run: divides files into partitions that keep all segments of a recording together."""

import concurrent.futures
import functools
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from mcptally.errors import McptallyError, UsageError
from mcptally.messages.memory_budget import (
    BYTES_PER_LARGE_RECORDING_BYTE,
    BYTES_PER_TRANSCRIPT_BYTE,
    PROCESS_BASE_BYTES,
)
from mcptally.plural import count
from mcptally.transcript import remote
from mcptally.transcript.discover import SkippedFile, discover
from mcptally.transcript.files import (
    CHUNK_BYTES,
    READ_ERRORS,
    Span,
    expansion_ratio,
    open_stream,
)
from mcptally.transcript.spans import spans_of

PARTITION: Final = 160 << 20
"""Maximum size of a partition in bytes of transcript, unless files that share a recording are
larger."""

SINGLE_PROCESS: Final = 240 << 20
"""Maximum size of a partition in bytes of transcript for a single process, which may use more
memory. Every partition takes an additional third of a second, regardless of its size."""

WORTHWHILE: Final = 16 << 20
"""Minimum amount of work, in bytes of transcript, for each of several processes."""

ONE_PROCESS: Final = 96 << 20
"""Bytes of transcript below which one process is faster than two: starting a second process and
compiling its rules takes as long as scoring 45 MB of transcript."""

_USUAL_EXPANSION: Final = 8
"""Factor by which a compressed transcript is assumed to expand at least. Real transcripts expand 5
to 10 times, or 40 times if calls repeat."""

_SMALL: Final = 1 << 14
"""Size in bytes of a compressed file below which its expansion is not measured."""

_HEAD_LIMIT: Final = 1 << 16
"""Number of bytes that are read to find a file's first event; an `open` event is far smaller."""

_AT_A_TIME: Final = 16
"""Number of remote files whose beginnings are read concurrently."""


def default_partition_bytes(jobs: int) -> int:
    """Return the default size limit of a partition in bytes of transcript.

    Args:
        jobs: number of processes.
    """
    return SINGLE_PROCESS if jobs == 1 else PARTITION


def limit_for_archive(total: int, limit: int, jobs: int) -> int:
    """Return `limit`, or 1.5 times `limit` if each process then gets at most one partition.

    One partition per process takes less time than several partitions, and less memory than
    finishing one partition while others wait. Only the default limit is raised, because a custom
    limit may be chosen for the available memory.

    Args:
        total: the size of all files to score in bytes of transcript.
        limit: the size limit of a partition in bytes of transcript.
        jobs: number of processes.
    """
    larger = limit + limit // 2
    raised = limit == default_partition_bytes(jobs) and total <= jobs * larger
    return larger if raised else limit


def bytes_in_memory(limit: int) -> int:
    """Return how many bytes of transcript all processes may keep in memory as gathered partitions.

    Further partitions wait on disk. A gathered partition takes twice the bytes of its transcript,
    which `BYTES_PER_TRANSCRIPT_BYTE` includes.

    Args:
        limit: the size limit of a partition in bytes of transcript.
    """
    return limit * 4 // 5


def bytes_in_slice(limit: int) -> int:
    """Return the memory in bytes above which a partition is divided into slices.

    Partitions are planned by size. A partition that is a large file or has many short lines needs
    more memory than planned.

    Args:
        limit: the size limit of a partition in bytes of transcript.
    """
    return max(limit, WORTHWHILE) * BYTES_PER_TRANSCRIPT_BYTE


def jobs_for_memory(memory: int, cores: int) -> int:
    """Return the number of processes for which `memory` bytes suffice, at most one per core."""
    return max(
        1, min(cores, memory // (PROCESS_BASE_BYTES + BYTES_PER_TRANSCRIPT_BYTE * WORTHWHILE))
    )


def partition_bytes_for_memory(memory: int, jobs: int = 1) -> int:
    """Return the size limit of a partition in bytes of transcript, if processes share the memory.

    Args:
        memory: the memory in bytes.
        jobs: number of processes.

    Raises:
        UsageError: there is too little memory for this number of processes.
    """
    each = memory // jobs - PROCESS_BASE_BYTES
    least = jobs * (PROCESS_BASE_BYTES + (BYTES_PER_TRANSCRIPT_BYTE << 20))
    if each < BYTES_PER_TRANSCRIPT_BYTE << 20:
        raise UsageError(
            f"--memory {memory / (1 << 20):.3g}M is too little for "
            f"{count(jobs, 'process', 'processes')}: at least {math.ceil(least / (1 << 20))}M, or "
            "fewer --jobs"
        )
    return each // BYTES_PER_TRANSCRIPT_BYTE


class Group(NamedTuple):
    """The files, or the part of a file, that form one partition."""

    files: list[Path]
    size: int
    """Approximate size in bytes of transcript."""
    span: Span | None = None


def plan(sizes: Mapping[Path, int], *, limit: int = PARTITION, jobs: int = 1) -> list[Group]:
    """Divide files into partitions of about `limit` bytes of transcript each, largest first.

    Files that begin with the same recording are its segments and stay in one partition. A file with
    several recordings is cut between them if it is larger than a partition. The number of
    partitions is a multiple of `jobs` if there is enough work.

    Args:
        sizes: maps files to their sizes in bytes of transcript.
        limit: the desired size of a partition in bytes of transcript.
        jobs: number of processes.
    """
    files = list(sizes)
    total = sum(sizes.values())
    parts = max(1, math.ceil(total / limit))
    if total >= ONE_PROCESS:
        parts = max(parts, min(jobs, total // WORTHWHILE))
    if parts == 1:
        return [Group(sorted(files), total)] if files else []
    parts = math.ceil(parts / jobs) * jobs
    groups: dict[str, list[Path]] = {}
    for path, recording in zip(files, _first_recordings(files), strict=True):
        groups.setdefault(recording or str(path), []).append(path)
    cut: list[Group] = []
    whole: list[tuple[int, list[Path]]] = []
    for group in groups.values():
        size = sum(map(sizes.__getitem__, group))
        spans = _cut(group, size, math.ceil(total / parts))
        cut += [Group(group, span.end - span.start, span) for span in spans]
        if not spans:
            whole.append((size, group))
    bins: list[tuple[int, int, list[Path]]] = [
        (0, number, []) for number in range(max(1, parts - len(cut)))
    ]
    for size, group in sorted(whole, reverse=True):
        filled, number, paths = bins[0]
        # Extend the list in place, because copying it for each file would take quadratic time.
        paths += group
        heapq.heapreplace(bins, (filled + size, number, paths))
    return cut + [
        Group(sorted(paths), size) for size, _, paths in sorted(bins, reverse=True) if paths
    ]


def _cut(files: Sequence[Path], size: int, target: int) -> list[Span]:
    """Divide a file into parts of about `target` bytes; return an empty list if it stays whole.

    Segments of one recording, remote files and compressed files (which cannot be read from the
    middle) are not divided.

    Args:
        files: the files of a group; only a single file is divided.
        size: the group's size in bytes.
        target: the desired size of a part in bytes.
    """
    path = files[0]
    if (
        size <= target
        or len(files) > 1
        or remote.is_remote(path)
        or path.suffix != ".jsonl"
        or first_recording(path) == _last_recording(path)
    ):
        return []
    try:
        spans = spans_of(path, target)
    except OSError:
        return []  # reported when the file is read
    return spans if len(spans) > 1 else []


def find_transcripts(
    paths: Iterable[str | Path], skipped: Callable[[SkippedFile], Any] = lambda _: None
) -> list[str | Path]:
    """Find the transcript files at `paths`, on this machine (`discover`) or behind URLs.

    Files on this machine are listed by name, others as `RemoteFile`.

    Args:
        paths: files, folders, patterns or URLs.
        skipped: called for each path in a folder that is named like a transcript but not read.

    Raises:
        UnreadableError: nothing can be read at a path or URL.
        UsageError: the package that a URL's protocol needs is not installed.
        McptallyError: a URL cannot be reached.
    """
    named = list(paths)
    urls = [path for path in named if isinstance(path, str) and remote.is_url(path)]
    local = [path for path in named if path not in urls]
    files: list[str | Path] = [*discover(local, skipped)] if local or not urls else []
    if not urls:
        return files
    return sorted({*files, *(file for url in urls for file in remote.discover(url))}, key=str)


def sizes_of(files: Iterable[Path]) -> dict[Path, int]:
    """Map files to their `transcript_bytes`."""
    return {path: transcript_bytes(path) for path in files}


def transcript_bytes(path: Path) -> int:
    """Return the approximate unpacked size of a transcript in bytes; 0 if the file is gone."""
    try:
        stat = path.stat()
    except OSError:
        return 0  # reported when the file is read
    if path.suffix == ".jsonl":
        return stat.st_size
    if stat.st_size < _SMALL or remote.is_remote(path):
        return stat.st_size * _USUAL_EXPANSION
    return int(stat.st_size * _expansion(path, stat.st_size, stat.st_mtime_ns))


@functools.lru_cache(1 << 16)
def _expansion(path: Path, size: int, mtime_ns: int) -> float:
    """Return the factor by which a compressed file expands, at least `_USUAL_EXPANSION`."""
    del size, mtime_ns  # the modification time is part of the cache's key
    try:
        measured = expansion_ratio(path)
    except (McptallyError, *READ_ERRORS):
        return _USUAL_EXPANSION  # reported when the file is read
    return 1 if measured is None else max(measured, _USUAL_EXPANSION)


def _first_recordings(files: Sequence[Path]) -> list[str | None]:
    """Return the `first_recording` of each file; read files behind URLs concurrently."""
    if not any(isinstance(path, remote.RemoteFile) for path in files):
        return [first_recording(path) for path in files]
    with concurrent.futures.ThreadPoolExecutor(_AT_A_TIME) as pool:
        return list(pool.map(first_recording, files))


class _FirstEvent(msgspec.Struct):
    recording: str


def first_recording(path: Path) -> str | None:
    """Return the recording to which a file's first event belongs; None if it cannot be read."""
    try:
        with open_stream(path) as stream:
            line, _, _ = stream.read(_HEAD_LIMIT).partition(b"\n")
            return msgspec.json.decode(line, type=_FirstEvent).recording
    except (McptallyError, ValueError, RecursionError, *READ_ERRORS):
        return None  # reported when the file is read


def undivided(sizes: Mapping[Path, int], limit: int) -> Iterator[str]:
    """Yield a message about each recording that is larger than a partition but stays undivided.

    A file that begins and ends with the same recording counts as one recording. Remote files are
    skipped.

    Args:
        sizes: the files to score, and their sizes in bytes of transcript.
        limit: the size limit of a partition in bytes of transcript.
    """
    sizes = {path: size for path, size in sizes.items() if not remote.is_remote(path)}
    if sum(sizes.values()) <= limit:
        return
    groups: dict[str, list[Path]] = {}
    for path, recording in zip(sizes, _first_recordings(list(sizes)), strict=True):
        if recording is not None:
            groups.setdefault(recording, []).append(path)
    for recording, group in groups.items():
        size = sum(map(sizes.__getitem__, group))
        if size > limit and all(_last_recording(path) == recording for path in group):
            need = PROCESS_BASE_BYTES + max(
                BYTES_PER_TRANSCRIPT_BYTE * limit, BYTES_PER_LARGE_RECORDING_BYTE * size
            )
            more = f" and {count(len(group) - 1, 'more file')}" if len(group) > 1 else ""
            yield (
                f"{group[0]}{more}: recording {recording} has {size / 1e6:,.0f} MB and cannot be "
                f"divided; scoring it takes about {need / 1e6:,.0f} MB of memory"
            )


def _last_recording(path: Path) -> str | None:
    """Return the recording to which a file's last complete line belongs; None if unreadable."""
    before = last = b""
    try:
        with open_stream(path) as stream:
            if path.suffix == ".jsonl":
                stream.seek(max(0, path.stat().st_size - 2 * CHUNK_BYTES))
            while block := stream.read(CHUNK_BYTES):
                before, last = last, block
        line = (before + last).rstrip(b"\n").rpartition(b"\n")[2]
        return msgspec.json.decode(line, type=_FirstEvent).recording
    except (McptallyError, ValueError, RecursionError, *READ_ERRORS):
        return None
