"""Finds lines whose JSON is nested too deeply."""

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from mcptally.transcript.parse import LINE_DEPTH
from mcptally.wire.nesting import is_too_deep


def has_too_deep(data: bytes, ends: Sequence[int]) -> bool:
    """Return whether a line is nested too deeply; most are ruled out by length or bracket count."""
    codes = np.frombuffer(data, np.uint8)
    return any(
        end - start > 2 * LINE_DEPTH
        and may_be_too_deep(codes[start:end], LINE_DEPTH)
        and is_too_deep(data[start:end], LINE_DEPTH)
        for start, end in itertools.pairwise((0, *ends))
    )


_BRACES_TO_BRACKETS: Final = 0xDF
"""Mask of the bit that distinguishes `{` from `[`, and `}` from `]`."""


def may_be_too_deep(line: npt.NDArray[np.uint8], limit: int) -> bool:
    """Return whether a line of JSON may have more than `limit` levels of nesting.

    `is_too_deep` decides; this function takes a third of the time.
    """
    if line.size > _MAX_COUNTED:
        return True
    opening = (line & _BRACES_TO_BRACKETS) == ord("[")
    if np.count_nonzero(opening) <= limit:
        return False
    # In JSON within a string, most braces precede an escaped quote or line break.
    opening[:-1] &= line[1:] != _BACKSLASH
    if np.count_nonzero(opening) <= limit:
        return False
    quotes = line == ord('"')
    closing = (line & _BRACES_TO_BRACKETS) == ord("]")
    places = np.flatnonzero(quotes | opening | closing)
    ends_string = quotes[places]
    after_backslash = np.flatnonzero(ends_string & (line[np.maximum(places - 1, 0)] == _BACKSLASH))
    # An odd number of backslashes before a quote escapes it.
    escaped = more = np.ones(after_backslash.size, np.bool_)
    before = places[after_backslash] - 2
    for _ in range(_MAX_BACKSLASHES):
        more = more & (before >= 0) & (line[before] == _BACKSLASH)
        if not more.any():
            break
        escaped = escaped ^ more
        before = before - 1
    else:
        return True
    ends_string[after_backslash] = ~escaped
    outside = np.cumsum(ends_string) % 2 == 0
    steps = np.where(opening[places], 1, -1)[outside & ~quotes[places]]
    return int(np.cumsum(steps).max(initial=0)) > limit


_BACKSLASH: Final = ord("\\")
_MAX_BACKSLASHES: Final = 64
"""Maximum number of backslashes counted before a quote."""

_MAX_COUNTED: Final = 8 << 20
"""Maximum size of a line that `may_be_too_deep` examines: it may need 40 times as much memory."""
