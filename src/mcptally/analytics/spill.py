"""Manages DuckDB's temporary folders, which are removed even if a process is killed.

A process locks the folder that it uses (`flock`). The operating system releases the lock when the
process exits for any reason, so a folder that can be locked is abandoned.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

PREFIX: Final = "mcptally-spill-"


class SpillFolder:
    """A new, empty folder in the system's temporary folder that only this user can read."""

    def __init__(self) -> None:
        remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = _lock(self.path, wait=True)
        while not self.path.exists():  # another process removed the folder before it was locked
            _unlock(self._lock)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            self._lock = _lock(self.path, wait=True)

    def remove(self) -> None:
        """Remove the folder with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        _unlock(self._lock)


def remove_abandoned() -> None:
    """Remove the spill folders of this user whose processes have ended."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # the folder is in use or no longer exists
            if path.lstat().st_uid == os.getuid():
                lock = _lock(path, wait=False)
                shutil.rmtree(path, ignore_errors=True)
                _unlock(lock)


def _lock(path: Path, *, wait: bool) -> int | None:
    """Lock a folder; return the descriptor that holds the lock, or None without file locks.

    Args:
        path: the folder.
        wait: whether to wait for the lock if another process has it.

    Raises:
        OSError: another process has the lock, or the path is not a folder.
    """
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if wait:
            return None
        raise
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(folder)
        # Other processes remove a folder only after they lock it, so without file locks, they never
        # do.
        if wait:
            return None
        raise
    return folder


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)
