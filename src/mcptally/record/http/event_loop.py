"""The event loop under the HTTP recorder: sockets, timers, signals, and a disk that may hang.

Not asyncio's, for one reason: what must be in the file before bytes are passed on is written in
this thread (handing it to another costs 100 µs a call, docs/decisions/0009), and a write that
never returns would stop all traffic. So every write goes through `commit`, which says what comes
after it; when it takes longer than `stall_seconds` another thread goes on from there, and the
one that was held ends when the disk lets go of it.
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
"""How often it is looked whether a write still goes on."""


class _ThreadReplaced(BaseException):
    """Unwinds a thread that was held so long that another does its work now."""


class Timer:
    """Something to be done later, unless it is cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback) -> None:
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        """Do not do it."""
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
    """Runs callbacks, one at a time, until `stop`."""

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
        # Of the write under way: since when, what follows it, and who runs the loop.
        self._commit_lock = threading.Lock()
        self._write_started = 0.0
        self._continuation: Callback | None = None
        self._owner: object = None
        self._stalled_threads = 0

    time: Final = staticmethod(time.monotonic)

    # --- what to wait for -----------------------------------------------------------------------

    def set_reader(self, fd: int, callback: Callback | None) -> None:
        """Call this when `fd` can be read, or no more."""
        registration = self._registrations.setdefault(fd, _Registration())
        registration.read = callback
        self._update_selector(fd, registration)

    def set_writer(self, fd: int, callback: Callback | None) -> None:
        """Call this when `fd` can be written, or no more."""
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
        """Do this after so many seconds."""
        timer = Timer(callback)
        heapq.heappush(self._timers, (self.time() + seconds, next(self._timer_ids), timer))
        return timer

    def call_soon(self, callback: Callback) -> None:
        """Do this after the present callback."""
        self._pending.append(callback)

    def call_from_thread(self, callback: Callback) -> None:
        """Do this soon; the one method that other threads may use."""
        self._pending.append(callback)
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"\0")

    @contextlib.contextmanager
    def signals(self, numbers: tuple[int, ...], callback: Callable[[int], None]) -> Iterator[None]:
        """Hear of these signals while the context lasts (in the main thread only)."""
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
        """Whether the disk holds a thread: what would be written now is to be given up."""
        return self._stalled_threads > 0

    def commit(self, write: Callback, then: Callback) -> None:
        """Do `write`, then `then`; the last thing a callback does.

        When `write` takes too long, `then` is done by another thread, and nothing that stands
        after `commit` ever runs.
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
                # Twice the same: a process that was held as a whole has had no turn to write.
                previous, last_seen = last_seen, started
                if not started or started != previous or time.monotonic() - started < stall_seconds:
                    continue
                self._write_started = 0.0
                self._stalled_threads += 1
                self._owner = owner = object()
            threading.Thread(
                target=self._run_thread, args=(owner, then), name="relay", daemon=True
            ).start()

    # --- running --------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until `stop`; back when the loop has ended, whichever thread ends it."""
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
        """End the loop after the present callback."""
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
            # Added to what is due, not called at once: a take-over must not lose the others.
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
