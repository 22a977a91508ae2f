"""Declares what the recorder shares with both archives: archive.py and process.py."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from mcptally.transcript.format import Dir
from mcptally.transcript.writer.log import log_to_stderr
from mcptally.wire.framing import Piece

if TYPE_CHECKING:
    from mcptally.transcript.writer.archive import Archive
    from mcptally.transcript.writer.process import WriterProcess
    from mcptally.transcript.writer.recording import Recording
    from mcptally.transcript.writer.remote_recording import RemoteRecording

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


RecordingWriter: TypeAlias = "Recording | RemoteRecording"
"""Writes the events of one recording, in this process or through the writer process."""

ArchiveWriter: TypeAlias = "Archive | WriterProcess"
"""Writes recordings into one folder, in this process or in another one."""


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
