"""Measures how much memory this process may use, and configures its allocators.

A scoring process keeps freed memory for the next partition: the kernel zeroes each new page, which
takes as long per byte as parsing JSON, so releasing and requesting memory again would take most of
a run's system time. Apply the settings before the columnar libraries are loaded.
"""

import contextlib
import ctypes
import gc
import mmap
import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

ENVIRONMENT: Final = {
    "POLARS_MAX_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:500,muzzy_decay_ms:500,narenas:1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""Environment variables for a scoring process. They limit it to one thread, because there is one
process per core, and make allocators keep freed memory for the next partition."""

LARGE_HEAP: Final = 3 << 29
"""Bytes of memory in use above which a process releases free memory even without mapped files; a
partition of the default size needs less, unless it contains very long lines."""

_CGROUPS: Final = {
    "": ("/sys/fs/cgroup", "memory.max", "memory.current", ""),
    "memory": (
        *("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        "total_",
    ),
}
"""For cgroup versions 2 and 1: the root folder, the names of the files with the limit and the
usage, and the prefix of the `memory.stat` lines that include child groups."""

_MALLOPT: Final = {
    "MALLOC_MMAP_THRESHOLD_": -3,
    "MALLOC_TRIM_THRESHOLD_": -1,
    "MALLOC_TOP_PAD_": -2,
}
"""Maps variables that glibc reads when a process starts to the parameters of `mallopt` (malloc.h).
"""


def configure_allocators() -> None:
    """Apply `ENVIRONMENT` to this process, except to libraries that are already loaded."""
    if "polars" not in sys.modules:
        for name in ENVIRONMENT.keys() - _MALLOPT.keys():
            os.environ.setdefault(name, ENVIRONMENT[name])
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # only glibc has it
        for name, number in _MALLOPT.items():
            mallopt(number, int(ENVIRONMENT[name]))


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Disable the garbage collector during bulk decoding; the structs are acyclic."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def available_memory() -> int | None:
    """Return the number of bytes that this process may still allocate, or None if unknown.

    The result is the minimum of `MemAvailable` in /proc/meminfo and the remaining bytes in the
    process's cgroups (version 2 and 1). The cgroups' file cache counts as free.
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        [available] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        return None
    return min([int(available) << 10, *_available_in_cgroups()])


def _available_in_cgroups() -> Iterator[int]:
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for _, kind, own in (line.split(":", 2) for line in lines):
        if kind not in _CGROUPS:
            continue
        root, limit_file, usage_file, prefix = _CGROUPS[kind]
        here = Path(root, own.lstrip("/"))
        for group in (here, *here.parents):
            if not group.is_relative_to(root):
                break
            try:
                left = available_in_cgroup(group, limit_file, usage_file, prefix)
            except (OSError, ValueError):  # the group has no limit, or a file is unreadable
                continue
            yield left


def available_in_cgroup(group: Path, limit_file: str, usage_file: str, prefix: str = "") -> int:
    """Return the number of bytes that processes in a cgroup may still allocate.

    The kernel counts cached file pages as used but reclaims them on demand, so their size is added.

    Args:
        group: the cgroup's folder.
        limit_file: name of the file that contains the limit.
        usage_file: name of the file that contains the usage.
        prefix: prefix of the `memory.stat` lines that include child groups.

    Raises:
        OSError: a file cannot be read.
        ValueError: there is no limit.
    """
    limit, taken = (
        int((group / name).read_text(encoding="ascii")) for name in (limit_file, usage_file)
    )
    lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    stat = dict(line.split(" ", 1) for line in lines)
    files = (f"{prefix}active_file", f"{prefix}inactive_file")
    return limit - taken + sum(int(stat.get(name, 0)) for name in files)


_MAPPED_FILES: Final[weakref.WeakSet[mmap.mmap]] = weakref.WeakSet()
"""The files that `map_file` has mapped and that are still in use."""


def map_file(file: IO[bytes]) -> mmap.mmap:
    """Map a file that no longer changes; `release_memory` drops its pages from memory."""
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _MAPPED_FILES.add(mapped)
    return mapped


def mapped_files() -> Sequence[mmap.mmap]:
    """Return the files that `map_file` has mapped and that are still in use."""
    return [*_MAPPED_FILES]


def release_memory() -> None:
    """Release memory that the next step may not need, if this process scores a large recording.

    The pages of mapped files are dropped; they are read again when they are used. The C allocator's
    free memory is released, because each allocator keeps its own: between two steps that use
    different allocators, a large recording would need the sum of the two peaks.
    """
    files = mapped_files()
    for mapped in files:
        mapped.madvise(mmap.MADV_DONTNEED)
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
        if trim is not None and (files or pages * os.sysconf("SC_PAGE_SIZE") > LARGE_HEAP):
            trim(0)


def dask_setup(_worker: object) -> None:
    """Apply `ENVIRONMENT` in a Dask worker with the option `--preload mcptally.process_memory`.

    Otherwise, Dask's workers would release freed memory immediately.
    """
    configure_allocators()
