"""How deep JSON is nested, decided by a scan: never by how much stack a caller has left.

Parsers stop at limits of their own, and in Python at what is left of the recursion limit. So depth
is decided before anything is decoded (`is_too_deep`), and what is not too deep is decoded with room
for it (`with_stack_room`). Pure Python without imports that cost start-up: the recorder uses it.
"""

import contextlib
import functools
import sys
import threading
from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, Final, ParamSpec, TypeVar

MAX_DEPTH: Final = 512
"""Deepest JSON nesting of a message, a payload or a value that is read: every parser in use accepts
it (orjson stops at 1024, msgspec at Python's recursion limit). A line of a transcript has one level
more, the event around its message."""

P = ParamSpec("P")
R = TypeVar("R")

_ROOM: Final = 3000
"""Levels of recursion for values of `MAX_DEPTH`, at several function calls for each level."""

_NO_BRACKET_OR_QUOTE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_UP_OR_DOWN: Final = bytes(1 if c in b"[{" else 255 for c in range(256))


def is_too_deep(text: bytes | str, limit: int = MAX_DEPTH) -> bool:
    """Whether arrays and objects of one JSON text stand within each other deeper than `limit`.

    Of bytes that are not JSON, this is decided for the part before the fault at least.
    """
    if len(text) <= limit:
        return False
    if isinstance(text, str):
        if text.count("[") + text.count("{") <= limit:
            return False
        text = text.encode("utf-8", "surrogatepass")
    return text.count(b"[") + text.count(b"{") > limit and _depth(text) > limit


def is_value_too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """The same of a value: of lists and dicts; one that holds itself is too deep."""
    level = [value]
    for _ in range(limit + 1):
        level = [v for v in level if isinstance(v, dict | list)]
        if not level:
            return False
        level = [w for v in level for w in (v.values() if isinstance(v, dict) else v)]
    return True


def _depth(text: bytes) -> int:
    """How deep the nesting of well-formed JSON goes, in C as far as possible (3 ms per MB)."""
    if b"\\" in text:
        # Without escapes every quote left begins or ends a string.
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    quoted = text.translate(None, _NO_BRACKET_OR_QUOTE).split(b'"')
    steps = array("b", b"".join(quoted[::2]).translate(_UP_OR_DOWN))
    return max(accumulate(steps), default=0)


_lock: Final = threading.Lock()
_limits: Final[dict[str, int]] = {"users": 0, "before": 0, "set": 0}


@contextlib.contextmanager
def stack_room() -> Iterator[None]:
    """Raise Python's recursion limit for a while, so that decoding does not depend on the caller.

    The limit is that of all threads: the last of those that needed room restores it.
    """
    depth = 0
    frame = sys._getframe()  # noqa: SLF001 - the one cheap way to count frames
    while (caller := frame.f_back) is not None:
        frame, depth = caller, depth + 1
    with _lock:
        if not _limits["users"]:
            _limits["before"] = _limits["set"] = sys.getrecursionlimit()
        _limits["users"] += 1
        if sys.getrecursionlimit() < depth + _ROOM:
            _limits["set"] = depth + _ROOM
            sys.setrecursionlimit(depth + _ROOM)
    try:
        yield
    finally:
        with _lock:
            _limits["users"] -= 1
            if not _limits["users"] and sys.getrecursionlimit() == _limits["set"]:
                # Refused where a thread is deeper than that by now; then the limit stays.
                with contextlib.suppress(RecursionError):
                    sys.setrecursionlimit(_limits["before"])


def with_stack_room(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, called in `stack_room`."""

    @functools.wraps(function)
    def roomy(*args: P.args, **kwargs: P.kwargs) -> R:
        with stack_room():
            return function(*args, **kwargs)

    return roomy
