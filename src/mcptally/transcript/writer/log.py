"""Writes the recorder's log messages to stderr without blocking."""

import contextlib
import os
import select


def log_to_stderr(message: str) -> None:
    """Write one log line to stderr; drop it if the write would block or fails."""
    write_to_stderr(f"mcptally: {message}\n".encode(errors="replace"))


def write_to_stderr(lines: bytes) -> None:
    """Write lines to stderr; drop them if the write would block or fails."""
    with contextlib.suppress(OSError):
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(2, select.POLLOUT)
            if not any(event & select.POLLOUT for _, event in poll.poll(0)):
                return
        os.write(2, lines)
