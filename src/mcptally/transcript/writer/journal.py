"""Implements the journal, a file with the events that have not yet been written to recordings.

The recorder and the writer map the journal as shared memory, so storing an event takes no system
call, and a stored event survives even if all processes are killed at once. The file's mode is 0600,
because its events are not redacted yet. Both processes keep the file locked. A journal without a
lock belongs to a recorder that was killed; recovery.py writes its events and removes the file.

Disk space is allocated before it is used, because writing to an unallocated page would kill the
process (SIGBUS). The file contains, in this order, the name of the redaction policy, the queue's
counters and bytes, and the progress of the recordings.
"""

import contextlib
import errno
import mmap
import os
import time
from typing import Final

from mcptally.errors import UnreadableError
from mcptally.transcript.format import JOURNAL_SUFFIX
from mcptally.transcript.writer.clock import new_id
from mcptally.transcript.writer.progress import SLOT_BYTES, SLOTS, ProgressTable
from mcptally.transcript.writer.segment import lock
from mcptally.transcript.writer.shared_queue import BLOCK_BYTES, HEADER_BYTES, SharedQueue

QUEUE_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of events that wait for the writer, if no frame exceeds 16 MiB."""

_MAX_QUEUE_BYTES: Final = 4 * 1024**3
_FRAMES: Final = 4
"""Number of frames of maximum size that fit into the queue."""

_MAGIC: Final = b"mcptally journal 1\n"
_POLICY_AT: Final = len(_MAGIC) + 8
_HEAD_BYTES: Final = 64 * 1024
_ZEROS: Final = bytes(64 * 1024)


def queue_bytes(frame_bytes: int) -> int:
    """Return the size of a queue for frames of at most `frame_bytes` bytes."""
    wanted = -(-frame_bytes * _FRAMES // BLOCK_BYTES) * BLOCK_BYTES
    return min(max(QUEUE_BYTES, wanted), _MAX_QUEUE_BYTES)


class Journal:
    """A queue of events and the progress of the recordings.

    Without a file, the journal is in anonymous memory, which is lost when all processes are killed.
    """

    def __init__(self, size: int, *, fd: int = -1, path: str = "", policy: str = "") -> None:
        self.fd: Final = fd
        """Descriptor that holds the lock; -1 without a file."""
        self.path: Final = path
        self.policy: Final = policy
        """Name of the redaction policy."""
        self._slots_allocated = 0
        self._slots_at = slots_at = _HEAD_BYTES + HEADER_BYTES + size
        self._memory = mmap.mmap(fd, _file_bytes(size))
        self.queue: Final = SharedQueue(self._memory, _HEAD_BYTES, size, allocate=self._allocate)
        self.progress: Final = ProgressTable(self._memory, slots_at)

    @property
    def frame_bytes(self) -> int:
        """Maximum size of a frame in the queue."""
        return self.queue.size // _FRAMES

    def allocate_first(self) -> None:
        """Allocate disk space for the counters and the first events.

        Raises:
            OSError: the disk is full.
        """
        counters = (len(_ZEROS), 2 * len(_ZEROS))
        if not (self._allocate(*counters) and self.queue.allocate_first_block()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def allocate_slot(self, slot: int) -> bool:
        """Allocate disk space for the progress of one more recording; False if the disk is full."""
        end = (slot + 1) * SLOT_BYTES
        if slot >= SLOTS:
            return False
        if end > self._slots_allocated:
            block = -(-end // len(_ZEROS)) * len(_ZEROS)
            begin = self._slots_at + self._slots_allocated
            if not self._allocate(begin, self._slots_at + block):
                return False
            self._slots_allocated = block
        return True

    def _allocate(self, begin: int, end: int) -> bool:
        if self.fd < 0:
            return True
        try:
            for at in range(begin, end, len(_ZEROS)):
                os.pwrite(self.fd, _ZEROS[: end - at], at)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Unmap the memory, and release the lock."""
        self.queue.close()
        self._memory.close()
        if self.fd >= 0:
            os.close(self.fd)

    def remove(self) -> None:
        """Remove the file; all of its events must have been written to the recordings."""
        if self.path:
            with contextlib.suppress(OSError):
                os.unlink(self.path)  # noqa: PTH108 - start-up time, see segment.py


def create(folder: str, *, policy: str, size: int) -> Journal:
    """Create and lock a journal in `folder`.

    Raises:
        OSError: the folder cannot be written, or its file system has no locks or shared memory.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    while True:
        began = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        name = f"recorder-{began}-{new_id()[-12:]}{JOURNAL_SUFFIX}"
        path = os.path.join(folder, name)  # noqa: PTH118
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # Another process may remove the file as long as it is empty and not locked.
            if lock(fd) and os.fstat(fd).st_nlink:
                os.ftruncate(fd, _file_bytes(size))
                os.pwrite(fd, _MAGIC + size.to_bytes(8, "little") + policy.encode(), 0)
                journal = Journal(size, fd=fd, path=path, policy=policy)
                journal.allocate_first()
                return journal
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108
            os.close(fd)
            raise
        os.close(fd)


def open_left_behind(path: str) -> Journal | None:
    """Lock and map the journal of a recorder that was killed.

    Returns None if the recorder is still running, or if another process has finished the journal.

    Raises:
        OSError: the file cannot be opened for writing or locked.
        UnreadableError: the file is not a journal of this version.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW
    fd = os.open(path, flags)
    try:
        if not lock(fd) or not os.fstat(fd).st_nlink:
            os.close(fd)
            return None
        header = os.read(fd, _HEAD_BYTES)
        if not header.strip(b"\0"):  # the recorder was killed before it relayed anything
            os.unlink(path)  # noqa: PTH108
            os.close(fd)
            return None
        size = _queue_bytes_in(header, os.fstat(fd).st_size)
        policy = header[_POLICY_AT:].rstrip(b"\0").decode(errors="replace")
        return Journal(size, fd=fd, path=path, policy=policy)
    except BaseException:
        os.close(fd)
        raise


def _queue_bytes_in(header: bytes, file_bytes: int) -> int:
    size = int.from_bytes(header[len(_MAGIC) : _POLICY_AT], "little")
    if (
        not header.startswith(_MAGIC)
        or file_bytes != _file_bytes(size)
        or size % BLOCK_BYTES
        or size > _MAX_QUEUE_BYTES
    ):
        raise UnreadableError("not a journal of this version of mcptally")
    return size


def _file_bytes(size: int) -> int:
    return _HEAD_BYTES + HEADER_BYTES + size + SLOTS * SLOT_BYTES
