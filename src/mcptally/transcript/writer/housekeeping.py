"""Compresses finished segments, and removes old segments by age and total size.

The work runs in one background thread with low priority and does not delay traffic. It touches only
files that are named like segments and not locked by a recorder.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple

from mcptally.transcript.writer.clock import Clock
from mcptally.transcript.writer.log import log_to_stderr
from mcptally.transcript.writer.segment import SEGMENT_NAME, try_lock

if TYPE_CHECKING:
    from pathlib import Path

FIRST_SWEEP_SECONDS: Final = 10.0
"""Delay before the first sweep, so that it does not slow the recorder's startup."""

SWEEP_SECONDS: Final = 3600.0
"""Time between sweeps; a sweep also follows each finished segment."""

IDLE_SECONDS: Final = 3600.0
"""Seconds without a write after which another recorder's unlocked segment is compressed."""

_STOP_SECONDS: Final = 0.25

_ZSTD_LEVEL: Final = 3
_CHUNK: Final = 256 * 1024


class _SegmentFile(NamedTuple):
    path: "Path"
    size: int
    modified: float


class Housekeeper:
    """The background thread for one folder; `queue` adds a finished segment for compression."""

    def __init__(
        self,
        folder: str,
        *,
        keep_bytes: int | None,
        keep_seconds: float | None,
        compress: bool,
        log: Callable[[str], None] = log_to_stderr,
    ) -> None:
        self._log = log
        self._folder = folder
        self._keep_bytes = keep_bytes
        self._keep_seconds = keep_seconds
        self._compress = compress
        # Do not use the wall clock: if it were set a year ahead, every segment would look too old.
        self._clock = Clock()
        self._finished: SimpleQueue[str | None] = SimpleQueue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = False
        """Whether starting the thread failed; the start is not tried again."""

    def start(self) -> None:
        """Start the thread if it is not running."""
        if self._thread is not None or self._failed:
            return
        thread = threading.Thread(target=self._run, name="mcptally-housekeeping", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the limit on memory or processes is reached
            self._failed = True
            self._log(f"finished files are neither compressed nor removed: {error}")
        else:
            self._thread = thread

    def queue(self, path: str) -> None:
        """Queue a finished segment for compression; retention is applied afterwards."""
        self._finished.put(path)
        self.start()

    def stop(self) -> None:
        """Stop the thread; the next recorder compresses the remaining segments."""
        self._stopping.set()
        self._finished.put(None)
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            # On Linux this sets the priority of this thread only.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        wait = FIRST_SWEEP_SECONDS
        while True:
            try:
                path = self._finished.get(timeout=wait)
            except Empty:
                path = None
            if self._stopping.is_set():
                return
            wait = SWEEP_SECONDS
            # On an error, the segment stays as it is, and the next sweep tries again.
            with contextlib.suppress(OSError):
                if path is not None and self._compress:
                    compress(path, stop=self._stopping)
                sweep(
                    self._folder,
                    keep_bytes=self._keep_bytes,
                    keep_seconds=self._keep_seconds,
                    compress_idle=self._compress,
                    now=self._clock.now() / 1e9,
                )


def compress(segment: "str | Path", *, stop: threading.Event | None = None) -> "Path | None":
    """Atomically replace a finished `.jsonl` with a `.jsonl.zst`; return None if it is locked.

    Raises:
        OSError: reading or writing failed, or `stop` was set; the original is unchanged.
    """
    # Import late, because most recordings end before anything is compressed.
    from pathlib import Path  # noqa: PLC0415

    import zstandard  # noqa: PLC0415

    path = Path(segment)
    target_path = path.with_name(path.name + ".zst")
    part_path = path.with_name(path.name + ".zst.part")
    with path.open("rb") as source:
        if not try_lock(source.fileno()):
            return None
        source_stat = os.fstat(source.fileno())
        fd = os.open(part_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(fd, "wb") as target:
                compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
                job = compressor.compressobj(size=source_stat.st_size)
                while chunk := source.read(_CHUNK):
                    if stop is not None and stop.is_set():
                        raise InterruptedError("the recorder is stopping")
                    target.write(job.compress(chunk))
                target.write(job.flush())
                target.flush()
                # Sync the copy before the original is removed, so that it survives a power failure.
                os.fsync(target.fileno())
            os.utime(part_path, ns=(source_stat.st_atime_ns, source_stat.st_mtime_ns))
            part_path.replace(target_path)
        except OSError:
            part_path.unlink(missing_ok=True)
            raise
    path.unlink(missing_ok=True)  # another recorder may have removed it
    return target_path


def sweep(
    folder: "str | Path",
    *,
    keep_bytes: int | None,
    keep_seconds: float | None,
    compress_idle: bool,
    now: float,
) -> None:
    """Compress idle segments; remove segments that are too old, or the oldest if space is short.

    `now` is in seconds since 1970. Segments locked by a recorder are skipped.

    Raises:
        OSError: the folder cannot be listed.
    """
    segments = sorted(_list_segments(folder), key=lambda segment: segment.modified)
    for segment in segments:
        idle = now - segment.modified > IDLE_SECONDS
        if segment.path.name.endswith(".part"):
            if idle:
                _remove(segment.path)
        elif compress_idle and idle and segment.path.name.endswith(".jsonl"):
            with contextlib.suppress(OSError):
                compress(segment.path)
    segments = sorted(_list_segments(folder), key=lambda segment: segment.modified)
    total = sum(segment.size for segment in segments)
    for segment in segments:
        too_old = keep_seconds is not None and now - segment.modified > keep_seconds
        too_much = keep_bytes is not None and total > keep_bytes
        if (too_old or too_much) and _remove(segment.path):
            total -= segment.size


def _list_segments(folder: "str | Path") -> list[_SegmentFile]:
    from pathlib import Path  # noqa: PLC0415 - see compress

    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if SEGMENT_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    stat = entry.stat()
                    found.append(_SegmentFile(Path(entry.path), stat.st_size, stat.st_mtime))
    return found


def _remove(path: "Path") -> bool:
    """Remove a segment unless a recorder has locked it; return whether it was removed."""
    try:
        with path.open("rb") as segment:
            if not try_lock(segment.fileno()):
                return False
        path.unlink()
    except OSError:
        return False
    return True
