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

_LOOK_SECONDS: Final = 0.25
"""How often it is looked whether a write still goes on."""


class _TakenOver(BaseException):
    """Unwinds a thread that was held so long that another does its work now."""


class Timer:
    """Something to be done later, unless it is cancelled."""

    __slots__ = ("call",)

    def __init__(self, call: Callback) -> None:
        self.call: Callback | None = call

    def cancel(self) -> None:
        """Do not do it."""
        self.call = None


class _Watched:
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
        self._watched: dict[int, _Watched] = {}
        self._soon: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()
        self._running = True
        self._ended = threading.Event()
        self._signalled: Callable[[int], None] = lambda _: None
        self._wake, self._waker = socket.socketpair()
        self._wake.settimeout(0)
        self._waker.settimeout(0)
        self.reader(self._wake.fileno(), self._woken)
        # Of the write under way: since when, what follows it, and who runs the loop.
        self._turn = threading.Lock()
        self._busy_since = 0.0
        self._then: Callback | None = None
        self._owner: object = None
        self._held = 0

    time: Final = staticmethod(time.monotonic)

    # --- what to wait for -----------------------------------------------------------------------

    def reader(self, fd: int, call: Callback | None) -> None:
        """Call this when `fd` can be read, or no more."""
        watched = self._watched.setdefault(fd, _Watched())
        watched.read = call
        self._ask(fd, watched)

    def writer(self, fd: int, call: Callback | None) -> None:
        """Call this when `fd` can be written, or no more."""
        watched = self._watched.setdefault(fd, _Watched())
        watched.write = call
        self._ask(fd, watched)

    def _ask(self, fd: int, watched: _Watched) -> None:
        events = selectors.EVENT_READ if watched.read else 0
        events |= selectors.EVENT_WRITE if watched.write else 0
        if events == watched.events:
            if not events:
                del self._watched[fd]
            return
        if not events:
            self._selector.unregister(fd)
            del self._watched[fd]
        elif not watched.events:
            self._selector.register(fd, events, watched)
        else:
            self._selector.modify(fd, events, watched)
        watched.events = events

    def call_later(self, seconds: float, call: Callback) -> Timer:
        """Do this after so many seconds."""
        timer = Timer(call)
        heapq.heappush(self._timers, (self.time() + seconds, next(self._count), timer))
        return timer

    def call_soon(self, call: Callback) -> None:
        """Do this after the present callback."""
        self._soon.append(call)

    def call_from_thread(self, call: Callback) -> None:
        """Do this soon; the one method that other threads may use."""
        self._soon.append(call)
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    @contextlib.contextmanager
    def signals(self, numbers: tuple[int, ...], call: Callable[[int], None]) -> Iterator[None]:
        """Hear of these signals while the context lasts (in the main thread only)."""
        self._signalled = call
        before = {number: signal.signal(number, lambda *_: None) for number in numbers}
        fd = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(fd)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in self._wake.recv(4096):
                if number:
                    self._signalled(number)

    # --- writing to the disk --------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """Whether the disk holds a thread: what would be written now is to be given up."""
        return self._held > 0

    def commit(self, write: Callback, then: Callback) -> None:
        """Do `write`, then `then`; the last thing a callback does.

        When `write` takes too long, `then` is done by another thread, and nothing that stands
        after `commit` ever runs.
        """
        owner = self._owner
        self._then = then
        self._busy_since = time.monotonic()
        try:
            write()
        finally:
            with self._turn:
                self._busy_since = 0.0
                if self._owner is not owner:
                    self._held -= 1
                    raise _TakenOver
        then()

    def _watch(self, stall_seconds: float) -> None:
        seen = 0.0
        while not self._ended.wait(_LOOK_SECONDS):
            with self._turn:
                since, then = self._busy_since, self._then
                # Twice the same: a process that was held as a whole has had no turn to write.
                before, seen = seen, since
                if not since or since != before or time.monotonic() - since < stall_seconds:
                    continue
                self._busy_since = 0.0
                self._held += 1
                self._owner = owner = object()
            threading.Thread(
                target=self._run_as, args=(owner, then), name="relay", daemon=True
            ).start()

    # --- running --------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until `stop`; back when the loop has ended, whichever thread ends it."""
        if self._stall_seconds is not None:
            threading.Thread(
                target=self._watch, args=(self._stall_seconds,), name="watchdog", daemon=True
            ).start()
        self._run_as(None, None)
        self._ended.wait()
        self._selector.close()
        self._wake.close()
        self._waker.close()

    def stop(self) -> None:
        """End the loop after the present callback."""
        self._running = False

    def _run_as(self, owner: object, first: Callback | None) -> None:
        try:
            if first is not None:
                first()
            while self._running and self._owner is owner:
                self._once()
        except _TakenOver:
            return
        except BaseException:
            self._ended.set()
            raise
        if self._owner is owner:
            self._ended.set()

    def _once(self) -> None:
        soon = self._soon
        timeout: float | None = None
        if soon:
            timeout = 0.0
        elif self._timers:
            timeout = max(0.0, self._timers[0][0] - time.monotonic())
        for key, events in self._selector.select(timeout):
            # Added to what is due, not called at once: a take-over must not lose the others.
            watched: _Watched = key.data
            if events & selectors.EVENT_READ:
                soon.append(watched.readable)
            if events & selectors.EVENT_WRITE:
                soon.append(watched.writable)
        while self._timers and self._timers[0][0] <= time.monotonic():
            timer = heapq.heappop(self._timers)[2]
            if timer.call is not None:
                soon.append(timer.call)
        for _ in range(len(soon)):
            soon.popleft()()
