"""Cuts a file with many recordings into parts that can be read apart from each other."""

import re
from pathlib import Path
from typing import Final

from mcptally.transcript.files import Digests, LineRun, Span, read_lines

_STEPS: Final = 8
"""Places per part at which a file may be cut."""

_EVENT: Final = re.compile(rb'\{"v": ?1, ?"event": ?"[a-z_]+", ?"recording": ?"([^"\\]*)"')
"""The beginning of a line, as the recorder and the importers write it."""


def spans_of(path: Path, target: int) -> list[Span]:
    """Parts of about `target` bytes each, so that no recording has events in two of them.

    There is one part if the recordings overlap everywhere, and none if some line does not begin as
    expected: limits of bad lines are per file.

    Args:
        path: a file that is not compressed.
        target: bytes of a part; a part is larger where recordings overlap.
    """
    digests = Digests()
    places: list[tuple[int, int]] = [(0, 1)]
    """Offset and number of a line of another recording than the line before."""
    latest: dict[bytes, int] = {}
    """Recording → number of places when its latest line was read."""
    overlapped: set[int] = set()
    """Places that are within a recording."""
    before, size = b"", 0
    for run in read_lines(path, digests=digests):
        if not isinstance(run, LineRun):
            return []
        start = 0
        for place, end in enumerate(run.ends):
            found = _EVENT.match(run.data, start)
            if found is None:
                return []
            recording = found[1]
            if recording != before:
                if size + start - places[-1][0] >= target / _STEPS:
                    places.append((size + start, run.first + place))
                overlapped.update(range(latest.get(recording, len(places)), len(places)))
                latest[recording] = len(places)
                before = recording
            start = end
        size += len(run.data)
    sha256 = digests.get(path, size)
    if sha256 is None:  # it is written to
        return []
    chosen, goal = [places[0]], target
    for place in sorted({*range(1, len(places))} - overlapped):
        if places[place][0] + target / (2 * _STEPS) >= goal:
            chosen.append(places[place])
            while goal < places[place][0] + target / 2:
                goal += target
    ends = [offset for offset, _ in chosen[1:]] + [size]
    return [
        Span(offset, end, line, size, sha256)
        for (offset, line), end in zip(chosen, ends, strict=True)
    ]
