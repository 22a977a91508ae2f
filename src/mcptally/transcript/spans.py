"""Divides a file with many recordings into parts that can be read independently."""

import re
from pathlib import Path
from typing import Final

from mcptally.transcript.files import Digests, LineRun, Span, read_lines

_STEPS: Final = 8
"""Number of candidate positions for a cut, per part."""

_EVENT: Final = re.compile(rb'\{"v": ?1, ?"event": ?"[a-z_]+", ?"recording": ?"([^"\\]*)"')
"""Matches the beginning of a line as written by the recorder and the importers."""


def spans_of(path: Path, target: int) -> list[Span]:
    """Divide a file into parts of about `target` bytes; no recording has events in two parts.

    Returns one part if the recordings overlap everywhere, and no part if a line does not begin like
    an event, because the limits on bad lines apply to whole files.

    Args:
        path: an uncompressed file.
        target: size of a part in bytes; parts are larger if recordings overlap.
    """
    digests: Digests = {}
    places: list[tuple[int, int]] = [(0, 1)]
    """Offset and number of each line where a part may begin, because the recording changes."""
    latest: dict[bytes, int] = {}
    """Maps recordings to the value of `len(places)` when their latest line was read."""
    overlapped: set[int] = set()
    """Indexes of places that are within a recording."""
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
    digest = digests.get((path, size))
    if digest is None:  # the file is still being written
        return []
    chosen, goal = [places[0]], target
    for place in sorted({*range(1, len(places))} - overlapped):
        if places[place][0] + target / (2 * _STEPS) >= goal:
            chosen.append(places[place])
            while goal < places[place][0] + target / 2:
                goal += target
    ends = [offset for offset, _ in chosen[1:]] + [size]
    return [
        Span(offset, end, line, size, digest)
        for (offset, line), end in zip(chosen, ends, strict=True)
    ]
