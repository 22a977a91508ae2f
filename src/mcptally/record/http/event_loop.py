"""Event loop of the HTTP recorder: sockets, timers, signals, and writes that may block.

asyncio is not used because each event is written to its file, in this thread, before its bytes are
forwarded: handing the write to another thread costs 100 µs per call (docs/decisions/0009). A write
that never returned would stop all traffic. Every write therefore goes through `commit`, which
takes the continuation as an argument. If the write takes longer than `stall_seconds`, another
thread runs the continuation and the loop; the blocked thread ends when its write returns.
"""

import contextlib
import heapq
import itertools
import selectors
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

Callback = Callable[[], None]

_WATCHDOG_SECONDS: Final = 0.25
"""Seconds between checks for a stalled write."""


class _ThreadReplaced(BaseException):
    """Ends a thread that stalled in a write and was replaced by another thread."""


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

    def readable(self) -> None:
        if self.read is not None:
            self.read()

    def writable(self) -> None:
        if self.write is not None:
            self.write()


class EventLoop:
    """Runs callbacks one at a time until `stop` is called."""

    def __init__(self, *, stall_seconds: float | None = None) -> None:
        self._stall_seconds = stall_seconds
        self._selector = selectors.DefaultSelector()
        self._registrations: dict[int, _Registration] = {}
        self._pending: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_ids = itertools.count()
        self._running = True
        self._ended = threading.Event()
        self._on_signal: Callable[[int], None] = lambda _: None
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.settimeout(0)
        self._wake_sender.settimeout(0)
        self.set_reader(self._wake_receiver.fileno(), self._on_wake)
        # State of the current write: start time, continuation, and the thread that owns the loop.
        self._commit_lock = threading.Lock()
        self._write_started = 0.0
        self._continuation: Callback | None = None
        self._owner: object = None
        self._stalled_threads = 0

    time: Final = staticmethod(time.monotonic)

    # --- events ---------------------------------------------------------------------------------

    def set_reader(self, fd: int, callback: Callback | None) -> None:
        """Set the callback for a readable `fd`; None removes it."""
        registration = self._registrations.setdefault(fd, _Registration())
        registration.read = callback
        self._update_selector(fd, registration)

    def set_writer(self, fd: int, callback: Callback | None) -> None:
        """Set the callback for a writable `fd`; None removes it."""
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
        """Run the callback on the loop; the only method that other threads may call."""
        self._pending.append(callback)
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"\0")

    @contextlib.contextmanager
    def signals(self, numbers: tuple[int, ...], callback: Callable[[int], None]) -> Iterator[None]:
        """Call `callback` for these signals inside the context; works only in the main thread."""
        self._on_signal = callback
        previous = {number: signal.signal(number, lambda *_: None) for number in numbers}
        fd = signal.set_wakeup_fd(self._wake_sender.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(fd)
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _on_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in self._wake_receiver.recv(4096):
                if number:
                    self._on_signal(number)

    # --- writing to the disk --------------------------------------------------------------------

    @property
    def is_stalled(self) -> bool:
        """Whether a thread is stalled in a write; callers must then drop events, not write them."""
        return self._stalled_threads > 0

    def commit(self, write: Callback, then: Callback) -> None:
        """Run `write`, then `then`. A callback must not run code after `commit`.

        If `write` stalls, another thread runs `then`, and the code after `commit` never runs.
        """
        owner = self._owner
        self._continuation = then
        self._write_started = time.monotonic()
        try:
            write()
        finally:
            with self._commit_lock:
                self._write_started = 0.0
                if self._owner is not owner:
                    self._stalled_threads -= 1
                    raise _ThreadReplaced
        then()

    def _watch_writes(self, stall_seconds: float) -> None:
        last_seen = 0.0
        while not self._ended.wait(_WATCHDOG_SECONDS):
            with self._commit_lock:
                started, then = self._write_started, self._continuation
                # Require the same write in two checks: a suspended process had no time to write.
                previous, last_seen = last_seen, started
                if not started or started != previous or time.monotonic() - started < stall_seconds:
                    continue
                self._write_started = 0.0
                self._stalled_threads += 1
                self._owner = owner = object()
            threading.Thread(
                target=self._run_thread, args=(owner, then), name="event loop", daemon=True
            ).start()

    # --- running --------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until `stop`; return when the loop has ended, in whichever thread."""
        if self._stall_seconds is not None:
            threading.Thread(
                target=self._watch_writes, args=(self._stall_seconds,), name="watchdog", daemon=True
            ).start()
        self._run_thread(None, None)
        self._ended.wait()
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()

    def stop(self) -> None:
        """End the loop after the current callback."""
        self._running = False

    def _run_thread(self, owner: object, continuation: Callback | None) -> None:
        try:
            if continuation is not None:
                continuation()
            while self._running and self._owner is owner:
                self._run_once()
        except _ThreadReplaced:
            return
        except BaseException:
            self._ended.set()
            raise
        if self._owner is owner:
            self._ended.set()

    def _run_once(self) -> None:
        pending = self._pending
        timeout: float | None = None
        if pending:
            timeout = 0.0
        elif self._timers:
            timeout = max(0.0, self._timers[0][0] - time.monotonic())
        for key, events in self._selector.select(timeout):
            # Queue the callbacks: if a stall replaces this thread, the others must not be lost.
            registration: _Registration = key.data
            if events & selectors.EVENT_READ:
                pending.append(registration.readable)
            if events & selectors.EVENT_WRITE:
                pending.append(registration.writable)
        while self._timers and self._timers[0][0] <= time.monotonic():
            timer = heapq.heappop(self._timers)[2]
            if timer.callback is not None:
                pending.append(timer.callback)
        for _ in range(len(pending)):
            pending.popleft()()
