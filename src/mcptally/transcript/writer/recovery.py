"""Finishes the journals of killed recorders: writes their events, then removes the journals."""

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from typing import Final

from mcptally.errors import McptallyError
from mcptally.plural import count
from mcptally.redaction.policy import policy
from mcptally.transcript.format import JOURNAL_SUFFIX
from mcptally.transcript.writer import journal as journals
from mcptally.transcript.writer.archive import Archive
from mcptally.transcript.writer.executor import Executor
from mcptally.transcript.writer.journal import Journal
from mcptally.transcript.writer.limits import Limits
from mcptally.transcript.writer.log import log_to_stderr

_ROOM: Final = 3
"""Maximum bytes of disk space per byte of waiting events. An event is longer on disk because of
base64 and its other fields."""

_MIN_ROOM: Final = 1024 * 1024


def journals_in(folder: str) -> list[str]:
    """Return the paths of the journals in a folder, including journals of running recorders."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return sorted(
            entry.path
            for entry in entries
            if entry.name.endswith(JOURNAL_SUFFIX) and entry.is_file(follow_symlinks=False)
        )
    return []


def finish_journals(
    folder: str, *, log: Callable[[str], None] = log_to_stderr
) -> list[tuple[str, str]]:
    """Write the events that killed recorders left in a folder, and remove their journals.

    For each journal that could not be finished, the function logs and returns the path and the
    reason.
    """
    problems = []
    for path in journals_in(folder):
        try:
            journal = journals.open_left_behind(path)
            if journal is not None:
                with contextlib.closing(journal):
                    _finish(journal, folder, log)
                journal.remove()
        except FileNotFoundError:  # another process has finished it
            continue
        except OSError as error:
            why = f"{error.strerror}; copy the folder to where it can be written"
        except McptallyError as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - any program may have written the file
            why = f"damaged: {error!r}"
        else:
            continue
        why = f"events of a recorder that was killed are not read: {why}"
        log(f"{path}: {why}")
        problems.append((path, why))
    return problems


def _finish(journal: Journal, folder: str, log: Callable[[str], None]) -> None:
    waiting = journal.queue.waiting_bytes
    if not os.access(folder, os.W_OK):
        raise PermissionError(0, "its folder cannot be written")
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < _ROOM * waiting + _MIN_ROOM:
        raise OSError(0, "the disk is full")
    archive = Archive(
        folder,
        policy=policy(journal.policy),
        limits=Limits(compress=False, keep_bytes=None, keep_seconds=None),
        log=log,
        buffered=True,
    )
    executor = Executor(journal, archive)
    before = journal.queue.counters.events
    executor.execute_again()
    executor.execute_until(journal.queue.counters.head)
    executor.release()
    if events := journal.queue.counters.events - before:
        log(f"{folder}: wrote {count(events, 'event')} of a recorder that was killed")


class FinishingThread:
    """Finishes the journals in a folder in the background; `join` waits for it."""

    def __init__(self, folder: str, *, own: str, log: Callable[[str], None]) -> None:
        self._thread: threading.Thread | None = None
        if set(journals_in(folder)) - {own}:
            finish = functools.partial(finish_journals, folder, log=log)
            self._thread = threading.Thread(target=finish, name="mcptally-finishing")
            try:
                self._thread.start()
            except RuntimeError:  # the limit on memory or processes is reached
                self._thread = None
                finish()

    def join(self) -> None:
        """Wait until the journals are finished."""
        if self._thread is not None:
            self._thread.join()
