"""One segment file while it grows: its name, its lock, and writes that tear no line.

Paths are strings here and in writer.py: pathlib alone would be a twentieth of our start-up.
"""

import contextlib
import errno
import os
import re
import sys
import time
from typing import Final

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

OURS: Final = re.compile(
    r"(?P<stem>[A-Za-z0-9._-]{1,60}-\d{8}T\d{6}Z-[0-9a-f]{12})-(?P<segment>\d{4,})"
    r"(?P<suffix>\.jsonl|\.jsonl\.part|\.jsonl\.zst|\.jsonl\.zst\.part)"
)
"""Names that the recorder gives; nothing else in a folder is ever compressed or removed."""

_LOCKED_BYTE: Final = 1 << 40

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def segment_stem(server: str | None, recording: str, wall_ns: int) -> str:
    """What all segments of a recording are called: label, start in UTC, end of its id."""
    label = _UNSAFE.sub("_", server or "server").strip("._")[:60] or "server"
    began = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall_ns // 1_000_000_000))
    return f"{label}-{began}-{recording.replace('-', '')[-12:]}"


def try_lock(fd: int) -> bool:
    """Mark an open segment as being written; False when another process holds it."""
    if sys.platform == "win32":
        # Locks are of bytes there, and bind everybody: one that no segment will ever reach.
        try:
            os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(fd, 0, os.SEEK_SET)
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without locks: treat the file as ours, housekeeping also asks for age.
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


class Segment:
    """An open segment: 0600, locked, only ever whole lines long.

    Raises:
        OSError: from the constructor and from `put`, when the disk refuses.
    """

    def __init__(self, folder: str, name: str) -> None:
        if not os.path.isdir(folder):  # noqa: PTH112
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        self.path = os.path.join(folder, name)  # noqa: PTH118
        # Windows renames no open file: there a segment has its name before its first line.
        self._first_name = self.path if sys.platform == "win32" else f"{self.path}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._fd = os.open(self._first_name, flags, 0o600)
        try_lock(self._fd)
        self.size = 0
        """Bytes of the file."""
        self.opened_at = time.monotonic()
        """When it was opened, in seconds on the monotonic clock."""

    def put(self, lines: bytes) -> None:
        """Append whole lines; on failure the file is as long as it was before."""
        try:
            written = os.write(self._fd, lines)
            while written < len(lines):
                written += os.write(self._fd, memoryview(lines)[written:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise
        self.size += len(lines)

    def publish(self) -> None:
        """Give the file its name, once it has its first line: a kill leaves no empty segment."""
        if self._first_name != self.path:
            os.rename(self._first_name, self.path)  # noqa: PTH104
            self._first_name = self.path

    def discard(self) -> None:
        """Close and remove a segment that never got its first line."""
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self._first_name)  # noqa: PTH108

    def exists(self) -> bool:
        """False once somebody removed the file while it was being written."""
        return os.fstat(self._fd).st_nlink > 0

    def close(self) -> None:
        """Let go of the file and its lock."""
        with contextlib.suppress(OSError):
            os.close(self._fd)
