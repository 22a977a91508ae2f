"""Where relayed bytes go: writes that never block, without changing a file that others share.

O_NONBLOCK belongs to the open file, which a client shares with us and perhaps with its terminal,
so it is set only on files of our own: a pipe of ours, or a second opening of the client's pipe.
"""

import contextlib
import os
import select
import stat
from typing import Final

_MIN_PIPE_BUF: Final = 512
"""POSIX's least PIPE_BUF: what a pipe that says it is writable takes without blocking."""


class Sink:
    """The far end of one direction; `write` takes what it can now."""

    def __init__(self, fd: int, *, also_close: tuple[int, ...] = ()) -> None:
        self.fd = fd
        self._also_close = also_close

    def write(self, data: memoryview) -> int:
        """Bytes taken, 0 when it would block.

        Raises:
            OSError: nobody is there to read any more.
        """
        try:
            return os.write(self.fd, data)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Let the reader see the end."""
        for fd in (self.fd, *self._also_close):
            close_fd(fd)


class _SocketSink(Sink):
    """A client's socket (node's pipes are sockets): non-blocking call by call."""

    def __init__(self, fd: int) -> None:
        import socket  # noqa: PLC0415 - start-up is felt in a client; pipes need none of it

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
    """A shared file that cannot be opened again: asks first, then writes a little."""

    def write(self, data: memoryview) -> int:
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        done = 0
        while done < len(data) and any(event & select.POLLOUT for _, event in poll.poll(0)):
            done += os.write(self.fd, data[done : done + _MIN_PIPE_BUF])
        if not done:
            os.write(self.fd, b"")  # a pipe nobody reads says so here
        return done


def client_sink(fd: int) -> Sink | None:
    """The sink for our own stdout or stderr, whatever the client made it; None if it is closed."""
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
    """Close a descriptor; 0, 1 and 2 stay taken, so that no file of ours ever gets their number."""
    with contextlib.suppress(OSError):
        if fd > 2:
            os.close(fd)
        else:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, fd)
            os.close(null)
