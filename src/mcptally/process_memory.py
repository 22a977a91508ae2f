"""What a process that scores does with memory: how much is free, and how its allocators behave.

Memory it once had, it uses again: the kernel zeroes every page that a process touches first, which
costs as much a byte as parsing JSON does; given back and asked for again, partition after
partition, that is most of a run's system time. The settings act where they are made before the
columnar libraries load.
"""

import atexit
import contextlib
import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ENVIRONMENT: Final = {
    "POLARS_MAX_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:5000,muzzy_decay_ms:5000,narenas:1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""For a process of its own: one thread (cores are used by processes), and what is freed is kept so
long that a next partition asks for it again."""

MUCH: Final = 1 << 30
"""Bytes of memory above which a process gives back what it does not use: a large recording."""

_CGROUPS: Final = {
    "": ("/sys/fs/cgroup", "memory.max", "memory.current", ""),
    "memory": (
        *("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        "total_",
    ),
}
"""Where cgroups, of version 2 and 1, say how much there may be and how much is taken; and how the
lines of their `memory.stat` about all below them begin."""

_MALLOPT: Final = {
    "MALLOC_MMAP_THRESHOLD_": -3,
    "MALLOC_TRIM_THRESHOLD_": -1,
    "MALLOC_TOP_PAD_": -2,
}
"""Those that glibc reads as a process begins, and their numbers in malloc.h."""


def settle() -> None:
    """`ENVIRONMENT` for this process, as far as it has not loaded the libraries already."""
    if "polars" not in sys.modules:
        gc.disable()  # nothing that loading makes is garbage
        atexit.register(_look_for_no_garbage)
        for name in ENVIRONMENT.keys() - _MALLOPT.keys():
            os.environ.setdefault(name, ENVIRONMENT[name])
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # glibc's
        for name, number in _MALLOPT.items():
            mallopt(number, int(ENVIRONMENT[name]))


def _look_for_no_garbage() -> None:
    """Let a process end at once; but DuckDB would tell the user of all that it then misses."""
    if "_duckdb" not in sys.modules:
        gc.freeze()


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Without the collector: structs by the hundred thousand, none of them in cycles."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def free() -> int | None:
    """Bytes that this process may still take, by the system and its cgroups; None: they don't say.

    Sources: `MemAvailable` of /proc/meminfo; the limits and use of cgroups, version 2 and 1, less
    what they only remember of files.
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        [available] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        return None
    return min([int(available) << 10, *_left_in_cgroups()])


def _left_in_cgroups() -> Iterator[int]:
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for _, kind, own in (line.split(":", 2) for line in lines):
        if kind not in _CGROUPS:
            continue
        root, most, now, all_ = _CGROUPS[kind]
        here = Path(root, own.lstrip("/"))
        for group in (here, *here.parents):
            if not group.is_relative_to(root):
                break
            try:
                left = left_in(group, most, now, all_)
            except (OSError, ValueError):  # no limit, or nobody says
                continue
            yield left


def left_in(group: Path, most: str, now: str, all_: str = "") -> int:
    """Bytes that a cgroup may still take.

    Pages of files that were read count as taken by who read them, until somebody needs the room.

    Args:
        group: its folder.
        most: the file with its limit.
        now: the file with what it has taken.
        all_: how the lines of `memory.stat` begin that count what is below it, too.

    Raises:
        OSError: it does not say.
        ValueError: it has no limit.
    """
    limit, taken = (int((group / name).read_text(encoding="ascii")) for name in (most, now))
    lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    said = dict(line.split(" ", 1) for line in lines)
    files = (f"{all_}active_file", f"{all_}inactive_file")
    return limit - taken + sum(int(said.get(name, 0)) for name in files)


def trim_heap(above: int = MUCH) -> None:
    """Between two steps: if this process has that much, the C allocator gives back what is free.

    Where one step's garbage is another allocator's need, a large recording would take both.
    """
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
        if trim is not None and pages * os.sysconf("SC_PAGE_SIZE") > above:
            trim(0)


def dask_setup(_worker: object) -> None:
    """Run by Dask in a worker that was started with `--preload mcptally.process_memory`.

    Dask's own settings give memory back at once, which is the opposite.
    """
    settle()
    gc.enable()  # a worker lives on, and its cycles with it
