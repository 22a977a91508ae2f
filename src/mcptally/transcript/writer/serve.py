"""Runs the writer process: executes the calls in the journal until the recorder exits."""

import os
import select
from typing import TYPE_CHECKING, Final

from mcptally.redaction.policy import policy
from mcptally.transcript.writer.archive import Archive
from mcptally.transcript.writer.executor import Executor
from mcptally.transcript.writer.interface import WAKE_MS
from mcptally.transcript.writer.recovery import FinishingThread
from mcptally.transcript.writer.shared_queue import LIMIT_BYTES

if TYPE_CHECKING:
    from mcptally.transcript.writer.process import WriterProcess

_UNANNOUNCED_MS: Final = 5 * WAKE_MS
"""Milliseconds after which the writer takes queued events even if no message about them arrived."""


def serve(remote: "WriterProcess", wake: int) -> None:
    """Execute calls until the pipe `wake` has been closed and the queue is empty."""
    archive = Archive(
        remote.folder,
        policy=policy(remote.journal.policy),
        limits=remote.limits,
        log=remote.log,
        buffered=True,
    )
    executor, queue = Executor(remote.journal, archive), remote.journal.queue
    executor.execute_again()
    finishing = FinishingThread(remote.folder, own=remote.journal.path, log=remote.log)
    limit = remote.limit
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    while True:
        executor.execute_until(limit)
        head = queue.counters.head
        if head != limit and not poll.poll(_UNANNOUNCED_MS):
            limit = head  # the pipe was full; after this wait, the recorder's stores are visible
        elif message := os.read(wake, 65536):
            limit = int.from_bytes(message[-LIMIT_BYTES:], "little")
        else:
            break
    executor.execute_until(queue.counters.head)
    executor.release()
    remote.journal.remove()
    finishing.join()
