"""Writes relayed bytes without blocking and without affecting shared open files.

O_NONBLOCK is a flag of the open file, which the client shares with the recorder and perhaps with
its terminal. The flag is therefore set only on the recorder's own pipes and on reopened client
pipes.
"""

import contextlib
import os
import select
import stat
from typing import Final

_MIN_PIPE_BUF: Final = 512
"""The number of bytes that a writable pipe accepts without blocking: the minimum of PIPE_BUF in
POSIX."""


class Sink:
    """The destination of a stream; `write` accepts as many bytes as possible at once."""

    def __init__(self, fd: int, *, also_close: tuple[int, ...] = ()) -> None:
        self.fd = fd
        self._also_close = also_close

    def write(self, data: memoryview) -> int:
        """Write without blocking; return the number of bytes written, 0 if it would block.

        Raises:
            OSError: the reader has closed its end.
        """
        try:
            return os.write(self.fd, data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Close the descriptors, so that the reader sees an end of file."""
        for fd in (self.fd, *self._also_close):
            close_fd(fd)


class _SocketSink(Sink):
    """The client's end of a socket (node uses sockets as pipes); writes with MSG_DONTWAIT."""

    def __init__(self, fd: int) -> None:
        import socket  # noqa: PLC0415 - start-up time; pipes do not need it

        self._flags = socket.MSG_DONTWAIT
        self._socket = socket.socket(fileno=os.dup(fd))
        super().__init__(self._socket.fileno(), also_close=(fd,))

    def write(self, data: memoryview) -> int:
        try:
            return self._socket.send(data, self._flags)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        self._socket.close()
        for fd in self._also_close:
            close_fd(fd)


class _PolledSink(Sink):
    """A shared file that cannot be reopened; polled before each write of at most PIPE_BUF bytes."""

    def write(self, data: memoryview) -> int:
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        done = 0
        while done < len(data) and any(event & select.POLLOUT for _, event in poll.poll(0)):
            done += os.write(self.fd, data[done : done + _MIN_PIPE_BUF])
        if not done:
            os.write(self.fd, b"")  # this raises an error if the reader has closed the pipe
        return done


def client_sink(fd: int) -> Sink | None:
    """Return the kind of sink that the descriptor's file type needs; None if it is closed."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return None
    if stat.S_ISSOCK(mode):
        return _SocketSink(fd)
    if stat.S_ISREG(mode):
        return Sink(fd)
    if stat.S_ISFIFO(mode) or os.isatty(fd):
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
            return Sink(os.open(f"/proc/self/fd/{fd}", flags), also_close=(fd,))
    return _PolledSink(fd)


def close_fd(fd: int) -> None:
    """Close a descriptor; connect 0, 1 and 2 to /dev/null, so that no file gets these numbers."""
    with contextlib.suppress(OSError):
        if fd > 2:
            os.close(fd)
        else:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, fd)
            os.close(null)
