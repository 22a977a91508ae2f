"""The writer process: executes the calls in the queue on an `Archive` until the recorder ends."""

import marshal
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from mcptally.record.writer.clock import Clock
from mcptally.record.writer.recording import Archive, Progress, Recording
from mcptally.wire.framing import Piece, TruncatedFrame

if TYPE_CHECKING:
    from mcptally.record.writer.process import Call, WriterProcess

_KILLED: Final = "the process that writes the recording ended while it wrote them"
_INCOMPLETE: Final = "the process that writes the recording ended before it had all their bytes"

_REPEATABLE: Final = frozenset({"prepare", "begin", "count_lost", "part", "close"})
"""Calls that the next process executes if the last one ended during them."""


def serve(remote: "WriterProcess", wake: int) -> None:
    """Execute calls until the pipe `wake` has ended and the queue is empty."""
    writer = _Writer(remote)
    queue = remote.queue
    if queue.was_interrupted:
        if (record := queue.begin()) is not None:
            writer.execute(record, interrupted=True)
        queue.done()
    is_open = True
    while is_open:
        is_open = bool(os.read(wake, 65536))
        while (record := queue.begin()) is not None:
            writer.execute(record)
            queue.done()
    writer.archive.close()


class _Writer:
    """The recordings of the writer process, by number."""

    def __init__(self, remote: "WriterProcess") -> None:
        self.archive: Final = Archive(
            remote.folder, policy=remote.policy(), limits=remote.limits, log=remote.log
        )
        self._progress = remote.progress
        self._recordings: dict[int, Recording] = {}
        self._slots: dict[int, int] = {}
        self._resumed: dict[int, int] = {}
        """Events that the last process wrote in the call during which it ended."""
        self._now = 0
        self._parts: list[bytes] = []
        self._parts_of = 0
        """Number of the recording that the parts belong to."""
        for number, recording in remote.recordings.items():
            progress = self._progress.load(recording.slot, number)
            if progress is not None:
                self._prepare(number, **recording.arguments)
                self._resumed[number] = self._recordings[number].resume(Progress(*progress))

    def execute(self, record: bytes, *, interrupted: bool = False) -> None:
        """Execute a call, or count its events as lost if the last process ended during it."""
        call: Call = marshal.loads(record)  # noqa: S302 - from the recorder
        number, self._now, method, events, encoded, arguments = call
        if number != self._parts_of:
            # Parts of another recording are left over from an event that was lost.
            self._parts, self._parts_of = [], number
        if method == "part":
            self._parts.append(record[len(record) - encoded[0] :])
            return
        parts, self._parts = self._parts, []
        if method == "prepare" and number not in self._recordings:
            self._prepare(number, **arguments)
        recording = self._recordings.get(number)
        if recording is None:
            return
        if interrupted and method not in _REPEATABLE:
            recording.count_lost(max(0, events - self._resumed.get(number, 0)), _KILLED)
        elif (pieces := _decode(encoded, b"".join(parts) if parts else record)) is None:
            recording.count_lost(events, _INCOMPLETE)
        elif method == "frame":
            recording.frame(pieces[0], **arguments)
        elif method == "frames":
            recording.frames(pieces, **arguments)
        elif method == "stderr":
            recording.stderr([line for line in pieces if isinstance(line, bytes)])
        elif method != "prepare":
            getattr(recording, method)(**arguments)
        self._progress.save(self._slots[number], number, tuple(recording.progress))
        if method == "close":
            del self._recordings[number], self._slots[number]

    def _prepare(self, number: int, *, slot: int, began_ns: int, **arguments: Any) -> None:
        self._now = began_ns
        clock = Clock(wall=lambda: began_ns, steady=lambda: self._now)
        self._recordings[number] = self.archive.prepare(clock=clock, **arguments)
        self._slots[number] = slot


def _decode(encoded: Sequence[Any], data: bytes) -> list[Piece] | None:
    """The pieces of a call, with the bytes of large ones from the end of `data`, if complete."""
    at = len(data) - sum(piece for piece in encoded if isinstance(piece, int))
    if at < 0:
        return None
    pieces: list[Piece] = []
    for piece in encoded:
        if isinstance(piece, int):
            pieces.append(data[at : at + piece])
            at += piece
        else:
            pieces.append(piece if isinstance(piece, bytes) else TruncatedFrame(*piece))
    return pieces
