"""The recorder's own words: one line on stderr, where they can never hold anything up."""

import contextlib
import os
import select


def log_to_stderr(message: str) -> None:
    """One line of the recorder's own on stderr, unless nobody reads it."""
    with contextlib.suppress(OSError):
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(2, select.POLLOUT)
            if not any(event & select.POLLOUT for _, event in poll.poll(0)):
                return
        os.write(2, f"mcptally: {message}\n".encode(errors="replace"))
