"""Implements the HTTP recorder's event loop: asyncio's, with a read buffer for all sockets.

The recorder uses its own sockets (`socket.py`) instead of asyncio's transports, which stop reading
after a failed write.
"""

import asyncio
from collections.abc import Callable
from typing import Final

READ_SIZE: Final = 256 * 1024
"""Maximum bytes per read from a socket."""


class EventLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop; `set_reader` and `set_writer` also remove a callback."""

    def __init__(self) -> None:
        super().__init__()
        # Reuse the buffer: allocating a large one for each read often makes glibc map and unmap
        # memory.
        self.read_buffer: Final = memoryview(bytearray(READ_SIZE))
        """Holds the data of one read; a callback must copy it before it returns."""

    def set_reader(self, fd: int, callback: Callable[[], None] | None) -> None:
        """Set the callback that runs when `fd` is readable; None removes it."""
        if callback is None:
            self.remove_reader(fd)
        else:
            self.add_reader(fd, callback)

    def set_writer(self, fd: int, callback: Callable[[], None] | None) -> None:
        """Set the callback that runs when `fd` is writable; None removes it."""
        if callback is None:
            self.remove_writer(fd)
        else:
            self.add_writer(fd, callback)
