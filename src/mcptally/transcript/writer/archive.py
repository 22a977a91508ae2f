"""Writes an archive, a folder of recordings, in this process.

On POSIX, an archive runs in the writer process (process.py). It may be used by several threads:

    archive = Archive("traces", policy=policy, limits=Limits())
    recording = archive.prepare(transport="stdio", server="time", command=["mcp-server-time"])
    recording.frames([b'{"jsonrpc":...}'], dir="c2s")            # a `message` or a `raw`
    recording.events([http_event({"dir": "c2s", "scope": "x1", "phase": "request"})])
    recording.events([(data, "s2c", "x1", None, {"sse_id": "7"})])
    recording.stderr([b"a line"])
    recording.close(reason="server_exited", exit_code=0)

The policy redacts only the recorded copy. Segments rotate by size and age. A background thread
compresses finished segments and applies retention (housekeeping.py).
"""

import os
from collections.abc import Callable, Sequence

from mcptally.errors import UnreadableError
from mcptally.redaction.policy import Policy
from mcptally.redaction.policy import policy as policy_named
from mcptally.transcript.format import RECORDER, Transport
from mcptally.transcript.writer.clock import Clock, new_id
from mcptally.transcript.writer.event_line import EventLineEncoder
from mcptally.transcript.writer.housekeeping import Housekeeper
from mcptally.transcript.writer.interface import WatchFunction
from mcptally.transcript.writer.limits import Limits
from mcptally.transcript.writer.log import log_to_stderr
from mcptally.transcript.writer.progress import Opening
from mcptally.transcript.writer.recording import Recording
from mcptally.transcript.writer.segment import SEGMENT_NAME, segment_stem
from mcptally.transcript.writer.segment_writer import SegmentWriter


class Archive:
    """A folder for recordings, with one redaction policy and one set of limits.

    `log` is called with each message for the user of the recorder. If `buffered`, events are only
    written when `Recording.flush` is called.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        policy: Policy | None = None,
        limits: Limits | None = None,
        log: Callable[[str], None] = log_to_stderr,
        buffered: bool = False,
    ) -> None:
        self.folder = os.fspath(out)
        self.policy = policy or policy_named()
        self.limits = limits or Limits()
        self.log = log
        self.clean_frames: frozenset[bytes] = frozenset()
        """Frames that the policy leaves unchanged, from `Policy.clean_frames`."""
        self._buffered = buffered
        self._housekeeper = Housekeeper(
            self.folder,
            keep_bytes=self.limits.keep_bytes,
            keep_seconds=self.limits.keep_seconds,
            compress=self.limits.compress,
            log=log,
        )

    def wake(self) -> None:
        """Do nothing: events are written at once."""

    def wait_until_written(self) -> None:
        """Do nothing: events are written at once."""

    def watch(self, watch: WatchFunction) -> None:
        """Do nothing: a failed write is detected at once, without an event loop."""

    def close(self) -> None:
        """Stop the background thread. Recordings must be closed separately."""
        self._housekeeper.stop()

    def prepare(
        self,
        *,
        transport: Transport,
        server: str | None = None,
        command: Sequence[str] | None = None,
        url: str | None = None,
        recording_id: str | None = None,
        clock: Clock | None = None,
    ) -> Recording:
        """Return a recording without a file yet; `begin` or the first event creates the file."""
        self._housekeeper.start()
        recording_id = recording_id or new_id()
        clock = clock or Clock()
        encoder = self._encoder(recording_id)
        server = None if server is None else encoder.redact_label(server)
        fields = {
            "transport": transport,
            "server": server,
            **({} if command is None else {"command": encoder.redact_command(command)}),
            **({} if url is None else {"url": encoder.redact_url(url)}),
            "recorder": RECORDER,
            "redaction": self.policy.name,
        }
        stem = segment_stem(server, recording_id, clock.began_ns)
        return self.continued(Opening(recording_id, stem, clock.began_ns, fields), clock=clock)

    def continued(self, opening: Opening, *, clock: Clock) -> Recording:
        """Return a recording that may already have files; if so, `Recording.resume` must follow.

        Raises:
            UnreadableError: its file names would not be names of segments.
        """
        if not SEGMENT_NAME.fullmatch(f"{opening.stem}-0000.jsonl"):
            raise UnreadableError(f"{opening.stem!r} is not the beginning of a file name")
        encoder = self._encoder(opening.recording)
        segments = SegmentWriter(
            self.folder,
            opening,
            encoder=encoder,
            clock=clock,
            limits=self.limits,
            buffered=self._buffered,
            log=self.log,
            on_finished=self._housekeeper.queue,
        )
        return Recording(opening.recording, segments, encoder=encoder, clock=clock, log=self.log)

    def _encoder(self, recording_id: str) -> EventLineEncoder:
        return EventLineEncoder(
            recording_id, self.policy, is_clean=lambda frame: frame in self.clean_frames
        )
