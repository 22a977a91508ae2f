"""Handles a segment file that is being written: naming, locking, and appending whole lines.

Paths are strings in this folder: importing pathlib would take 5 % of the recorder's start-up time.
"""

import contextlib
import errno
import fcntl
import os
import re
import time
from collections import Counter
from typing import Final

SEGMENT_NAME: Final = re.compile(
    r"(?P<stem>[A-Za-z0-9._-]{1,60}-\d{8}T\d{6}Z-[0-9a-f]{12})-(?P<segment>\d{4,})"
    r"(?P<suffix>\.jsonl|\.jsonl\.part|\.jsonl\.zst|\.jsonl\.zst\.part)"
)
"""Matches the file names of segments. Other files in the folder are never compressed or removed."""

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def segment_stem(server: str | None, recording: str, wall_ns: int) -> str:
    """Return a recording's file name prefix: label, start time in UTC, and end of the id."""
    label = _UNSAFE.sub("_", server or "server").strip("._")[:60] or "server"
    began = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall_ns // 1_000_000_000))
    return f"{label}-{began}-{recording.replace('-', '')[-12:]}"


def lock(fd: int) -> bool:
    """Lock an open file; return False if another process has locked it.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def try_lock(fd: int) -> bool:
    """Like `lock`, but return True on file systems without locks."""
    try:
        return lock(fd)
    except OSError:
        return True


def open_plain(path: str, flags: int) -> int:
    """Open a file; used as the `opener` of `open`.

    Links are refused, because an archive may come from a stranger.
    """
    return os.open(path, flags | os.O_NOFOLLOW)


class Segment:
    """An open, locked segment file with mode 0600 that always ends with a complete line.

    Raises:
        OSError: the constructor or `put` cannot create or write the file.
    """

    def __init__(self, folder: str, name: str) -> None:
        if not os.path.isdir(folder):  # noqa: PTH112
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        self.path = os.path.join(folder, name)  # noqa: PTH118
        self._first_name = f"{self.path}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._fd = os.open(self._first_name, flags, 0o600)
        try_lock(self._fd)
        self.size = 0
        """Size of the file in bytes."""
        self.counts: Counter[str] = Counter()
        """Number of events in the file by kind; counted by the code that writes the lines."""
        self.reported_lost = 0
        """Number of lost events that `gap` events in the file report."""
        self.opened_at = time.monotonic()
        """Time of opening, in seconds of the monotonic clock."""

    def put(self, lines: bytes) -> None:
        """Append whole lines; on failure the file keeps its previous length."""
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
        """Rename the file from `.part` to its final name.

        The caller has written the first line, so no segment is empty.
        """
        if self._first_name != self.path:
            os.rename(self._first_name, self.path)  # noqa: PTH104
            self._first_name = self.path

    def discard(self) -> None:
        """Close and remove a segment whose first line could not be written."""
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self._first_name)  # noqa: PTH108

    def exists(self) -> bool:
        """Return whether the open file still exists under its name."""
        return os.fstat(self._fd).st_nlink > 0

    def close(self) -> None:
        """Close the file and release its lock."""
        with contextlib.suppress(OSError):
            os.close(self._fd)
