"""Limits the nesting of JSON, independent of the parser and of the caller's stack depth.

Parsers have their own limits, and the limits of Python parsers depend on the current stack depth.
Therefore the depth is checked before decoding (`is_too_deep`), and decoding runs with a raised
recursion limit (`with_raised_recursion_limit`). The recorder uses this module, so it imports
nothing slow.
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
"""Maximum nesting of a message, payload or value that is decoded.

All parsers in use accept this depth (orjson stops at 1024, msgspec at Python's recursion limit). A
line of a transcript may have one more level: the event that contains the message."""

P = ParamSpec("P")
R = TypeVar("R")

_EXTRA_FRAMES: Final = 3000
"""Number of stack frames for values nested `MAX_DEPTH` deep, with several calls per level."""

_NO_BRACKET_OR_QUOTE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_UP_OR_DOWN: Final = bytes(1 if c in b"[{" else 255 for c in range(256))


def is_too_deep(text: bytes | str, limit: int = MAX_DEPTH) -> bool:
    """Return whether arrays and objects in a JSON text are nested more than `limit` levels deep.

    If the text is not valid JSON, at least the part before the error is checked.
    """
    if len(text) <= limit:
        return False
    if isinstance(text, str):
        if text.count("[") + text.count("{") <= limit:
            return False
        text = text.encode("utf-8", "surrogatepass")
    return text.count(b"[") + text.count(b"{") > limit and _depth(text) > limit


def is_value_too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Return whether a value is nested more than `limit` levels deep, or contains itself."""
    level = [value]
    for _ in range(limit + 1):
        level = [v for v in level if isinstance(v, dict | list)]
        if not level:
            return False
        level = [w for v in level for w in (v.values() if isinstance(v, dict) else v)]
    return True


def _depth(text: bytes) -> int:
    """Return the nesting depth of valid JSON (3 ms per MB: most of the work is done in C)."""
    if b"\\" in text:
        # Without escapes, every quote starts or ends a string.
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    quoted = text.translate(None, _NO_BRACKET_OR_QUOTE).split(b'"')
    steps = array("b", b"".join(quoted[::2]).translate(_UP_OR_DOWN))
    return max(accumulate(steps), default=0)


_lock: Final = threading.Lock()
_limits: Final[dict[str, int]] = {"users": 0, "before": 0, "set": 0}


@contextlib.contextmanager
def raised_recursion_limit() -> Iterator[None]:
    """Raise the recursion limit in a `with` block, so that the stack depth does not limit decoding.

    All threads share the limit; the last thread that leaves such a block restores it.
    """
    depth = 0
    frame = sys._getframe()  # noqa: SLF001 - the one cheap way to count frames
    while (caller := frame.f_back) is not None:
        frame, depth = caller, depth + 1
    with _lock:
        if not _limits["users"]:
            _limits["before"] = _limits["set"] = sys.getrecursionlimit()
        _limits["users"] += 1
        if sys.getrecursionlimit() < depth + _EXTRA_FRAMES:
            _limits["set"] = depth + _EXTRA_FRAMES
            sys.setrecursionlimit(depth + _EXTRA_FRAMES)
    try:
        yield
    finally:
        with _lock:
            _limits["users"] -= 1
            if not _limits["users"] and sys.getrecursionlimit() == _limits["set"]:
                # If the current stack is deeper, Python refuses to lower the limit, which then
                # remains raised.
                with contextlib.suppress(RecursionError):
                    sys.setrecursionlimit(_limits["before"])


def with_raised_recursion_limit(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that it runs inside `raised_recursion_limit`."""

    @functools.wraps(function)
    def roomy(*args: P.args, **kwargs: P.kwargs) -> R:
        with raised_recursion_limit():
            return function(*args, **kwargs)

    return roomy
