"""Determines at low cost whether the JSON on a line is nested too deeply."""

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from mcptally.transcript.parse import LINE_DEPTH
from mcptally.wire.nesting import is_too_deep


def has_too_deep(data: bytes, ends: Sequence[int]) -> bool:
    """Return whether any of the lines is nested too deeply.

    Most lines are not parsed, because they are too short or have too few brackets.

    Args:
        data: the lines.
        ends: the position after each line in `data`.
    """
    codes = np.frombuffer(data, np.uint8)
    return any(
        end - start > 2 * LINE_DEPTH
        and may_be_too_deep(codes[start:end], LINE_DEPTH)
        and is_too_deep(data[start:end], LINE_DEPTH)
        for start, end in itertools.pairwise((0, *ends))
    )


_BRACES_TO_BRACKETS: Final = 0xDF
"""Bit mask that maps `{` to `[`, and `}` to `]`."""


def may_be_too_deep(line: npt.NDArray[np.uint8], limit: int) -> bool:
    """Return whether a line has more than `limit` opening brackets that may nest values.

    In JSON within a string, most braces precede an escaped quote or line break; such braces are not
    counted. Almost all lines in real traffic have fewer brackets; `is_too_deep` checks the other
    lines.
    """
    if line.size > _MAX_COUNTED:
        return True
    opening = (line & _BRACES_TO_BRACKETS) == ord("[")
    if np.count_nonzero(opening) <= limit:
        return False
    opening[:-1] &= line[1:] != ord("\\")
    return bool(np.count_nonzero(opening) > limit)


_MAX_COUNTED: Final = 8 << 20
"""Maximum size in bytes of a line whose brackets are counted: counting takes three times the line's
memory. Longer lines are always checked."""
