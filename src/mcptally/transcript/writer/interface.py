"""Declares the interface that the recorder uses; archive.py and process.py implement it."""

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from mcptally.transcript.format import Dir, Transport
from mcptally.transcript.writer.limits import Limits
from mcptally.transcript.writer.log import log_to_stderr
from mcptally.wire.framing import Piece

WAKE_MS: Final = 50
"""Minimum milliseconds between wake-ups of the writer, because each wake-up costs as much as
several calls."""

NOT_STARTED: Final = 127
"""Exit code when the server cannot be started."""

WatchFunction = Callable[[int, Callable[[], None] | None], None]
"""Registers a function to be called when a descriptor is readable; None unregisters it."""


FrameEvent = tuple[Piece, Dir, str | None, int | None, dict[str, Any]]
"""A frame of an HTTP exchange: its bytes, direction, scope, length on the wire if it differs from
the frame's length (decoded SSE), and fields such as `sse_id` that are added to the event
unchanged."""

ExchangeEvent = bytes | FrameEvent
"""A frame, or the fields of an `http` event as JSON (from `event_line.http_event`)."""


class RecordingWriter(Protocol):
    """Writes the events of one recording; see recording.py."""

    def begin(self) -> None:
        """Create the file now, not with the first event."""

    def frames(
        self,
        pieces: Sequence[Piece],
        *,
        dir: Dir,  # noqa: A002
        **fields: Any,
    ) -> None:
        """Record frames read from a pipe."""

    def stderr(self, lines: Sequence[bytes]) -> None:
        """Record lines of stderr."""

    def events(self, events: Sequence[ExchangeEvent]) -> None:
        """Record events of an HTTP exchange in order."""

    def close(
        self, *, reason: str, exit_code: int | None = None, signal: int | None = None, **fields: Any
    ) -> None:
        """End the recording."""


class ArchiveWriter(Protocol):
    """Writes recordings into one folder; see archive.py."""

    @property
    def folder(self) -> str:
        """The folder that contains the recordings."""

    @property
    def limits(self) -> Limits:
        """The limits on file sizes, age and delays."""

    def log(self, message: str, /) -> None:
        """Print a message for the user of the recorder."""

    def prepare(
        self,
        *,
        transport: Transport,
        server: str | None = None,
        command: Sequence[str] | None = None,
        url: str | None = None,
    ) -> RecordingWriter:
        """Return a recording without a file yet."""

    def wake(self) -> None:
        """Ensure that the recorded events are written soon."""

    def wait_until_written(self) -> None:
        """Wait until the recorded events are in the files; give up if the disk is too slow."""

    def watch(self, watch: WatchFunction) -> None:
        """Register the descriptors to which the archive must react with an event loop."""

    def close(self) -> None:
        """Close the archive; all recordings must be closed already."""


def close_not_started(recording: RecordingWriter, why: str) -> int:
    """Close and log a recording whose server could not be started; return the exit code."""
    path = os.environ.get("PATH", os.defpath)
    log_to_stderr(why)
    recording.close(reason="not_started", exit_code=NOT_STARTED, detail=why, path=path)
    return NOT_STARTED


def close_with_exit(recording: RecordingWriter, code: int, *, reason: str | None = None) -> int:
    """Close a recording after the server's exit; return the recorder's exit code.

    `code` is the server's exit code, or -N if signal N ended the server; the recorder's exit code
    is then 128 + N. `reason` says why the server exited, if it did not exit by itself.
    """
    if code >= 0:
        recording.close(reason=reason or "server_exited", exit_code=code)
        return code
    recording.close(reason=reason or "server_killed", signal=-code)
    return 128 - code
