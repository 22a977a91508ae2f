"""Implements the HTTP recorder's event loop: sockets, timers and signals.

asyncio is not used, because importing it and using its transports takes longer
(docs/design/recorder.md).
"""

import contextlib
import heapq
import itertools
import os
import select
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

READ_SIZE: Final = 256 * 1024
"""Maximum bytes per read from a socket."""

Callback = Callable[[], None]


class Timer:
    """A scheduled callback that can be cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        """Cancel the callback."""
        self.callback = None


class _Registration:
    __slots__ = ("events", "read", "write")

    def __init__(self) -> None:
        self.events = 0
        self.read: Callback | None = None
        self.write: Callback | None = None


class EventLoop:
    """Runs callbacks one at a time until `stop` is called."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._readable, self._writable = selectors.EVENT_READ, selectors.EVENT_WRITE
        self._epoll: select.epoll | None = None
        """On Linux, the selector's epoll object. Waiting on epoll directly avoids the selector's
        key objects."""
        if sys.platform == "linux" and isinstance(self._selector, selectors.EpollSelector):
            self._epoll = select.epoll.fromfd(os.dup(self._selector.fileno()))
            # After an error, count both directions as ready.
            self._readable, self._writable = ~select.EPOLLOUT, ~select.EPOLLIN
        self._registrations: dict[int, _Registration] = {}
        self._pending: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_ids = itertools.count()
        self._running = True
        self._on_signal: Callable[[int], None] = lambda _: None
        self._other_wakeup_fd: int | None = None
        """The wakeup descriptor that `signals` has replaced and not restored yet."""
        # Reuse the buffer: allocating a large one for each read often makes glibc map and unmap
        # memory.
        self.read_buffer: Final = memoryview(bytearray(READ_SIZE))
        """Holds the data of one read; a callback must copy it before it returns."""
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.settimeout(0)
        self._wake_sender.settimeout(0)
        self.set_reader(self._wake_receiver.fileno(), self._on_wake)

    time: Final = staticmethod(time.monotonic)

    # --- events ---------------------------------------------------------------------------------

    def set_reader(self, fd: int, callback: Callback | None) -> None:
        """Set the callback that runs when `fd` is readable; None removes it."""
        registration = self._registrations.setdefault(fd, _Registration())
        registration.read = callback
        self._update_selector(fd, registration)

    def set_writer(self, fd: int, callback: Callback | None) -> None:
        """Set the callback that runs when `fd` is writable; None removes it."""
        registration = self._registrations.setdefault(fd, _Registration())
        registration.write = callback
        self._update_selector(fd, registration)

    def _update_selector(self, fd: int, registration: _Registration) -> None:
        events = selectors.EVENT_READ if registration.read else 0
        events |= selectors.EVENT_WRITE if registration.write else 0
        if events == registration.events:
            if not events:
                del self._registrations[fd]
            return
        if not events:
            self._selector.unregister(fd)
            del self._registrations[fd]
        elif not registration.events:
            self._selector.register(fd, events, registration)
        else:
            self._selector.modify(fd, events, registration)
        registration.events = events

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Run the callback after `seconds`."""
        timer = Timer(callback)
        heapq.heappush(self._timers, (self.time() + seconds, next(self._timer_ids), timer))
        return timer

    def call_soon(self, callback: Callback) -> None:
        """Run the callback after the current one."""
        self._pending.append(callback)

    def call_from_thread(self, callback: Callback) -> None:
        """Run the callback in the loop's thread. Other threads may call only this method."""
        self._pending.append(callback)
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"\0")

    @contextlib.contextmanager
    def signals(self, numbers: tuple[int, ...], callback: Callable[[int], None]) -> Iterator[None]:
        """Within a `with` block in the main thread, call `callback` for each of these signals."""
        self._on_signal = callback
        previous = {number: signal.signal(number, lambda *_: None) for number in numbers}
        self._other_wakeup_fd = signal.set_wakeup_fd(
            self._wake_sender.fileno(), warn_on_full_buffer=False
        )
        try:
            yield
        finally:
            self._restore_wakeup_fd()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _restore_wakeup_fd(self) -> None:
        if self._other_wakeup_fd is not None:
            signal.set_wakeup_fd(self._other_wakeup_fd)
            self._other_wakeup_fd = None

    def _on_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in self._wake_receiver.recv(4096):
                if number:
                    self._on_signal(number)

    # --- running --------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until `stop` is called."""
        while self._running:
            self._run_once()
        # From now on, `signals` ignores signals: they must not write to the closed socket.
        self._restore_wakeup_fd()
        self._selector.close()
        if self._epoll is not None:
            self._epoll.close()
        self._wake_receiver.close()
        self._wake_sender.close()

    def stop(self) -> None:
        """End the loop after the current callback."""
        self._running = False

    def _run_once(self) -> None:
        pending, timers = self._pending, self._timers
        for _ in range(len(pending)):
            pending.popleft()()
        timeout: float | None = None
        if pending or not self._running:
            timeout = 0.0
        elif timers:
            timeout = max(0.0, timers[0][0] - time.monotonic())
        for registration, events in self._wait(timeout):
            # An earlier callback may have unregistered this descriptor.
            if events & self._readable and registration.read is not None:
                registration.read()
            if events & self._writable and registration.write is not None:
                registration.write()
        while timers and timers[0][0] <= time.monotonic():
            timer = heapq.heappop(timers)[2]
            if timer.callback is not None:
                timer.callback()

    def _wait(self, timeout: float | None) -> list[tuple[_Registration, int]]:
        """Wait for events; return each ready descriptor's registration and its events."""
        if self._epoll is None:
            return [(key.data, events) for key, events in self._selector.select(timeout)]
        registrations = self._registrations
        return [
            (registrations[fd], events)
            for fd, events in self._epoll.poll(timeout, len(registrations))
            if fd in registrations
        ]
