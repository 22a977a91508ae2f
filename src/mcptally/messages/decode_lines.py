"""Decodes lines to event structs. Each line becomes an event or a fault; blank lines are skipped.

A native call decodes many lines at once. If it fails, the lines are decoded one by one, so that a
bad line does not affect its neighbours.
"""

import bisect
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mcptally.messages.line_depth import has_too_deep
from mcptally.transcript.events import AnyEvent
from mcptally.transcript.files import LineRun
from mcptally.transcript.parse import (
    TORN_TAIL_MESSAGE,
    decode_events,
    is_torn,
    parse_event,
)

LineNumbers = npt.NDArray[np.int64]
"""Line numbers, starting from 1."""
Fault = tuple[int, str, str]
"""Line number, id of the violated rule, and message."""

_PIECE_BYTES: Final = 1 << 15
"""Number of bytes that one native call decodes. A piece that contains a bad line is split in half.
"""

_FEW_LINES: Final = 4
"""Number of lines up to which a piece with a bad line is decoded line by line."""


def decode_run(run: LineRun) -> tuple[list[AnyEvent], LineNumbers, list[Fault]]:
    """Decode a run of lines into events with their line numbers, and faults for the other lines."""
    readable = _is_readable(run.data, run.ends)
    events: list[AnyEvent] = []
    numbers: list[LineNumbers] = []
    faults: list[Fault] = []
    view = memoryview(run.data)
    todo = [(0, run.count)]
    while todo:
        line, limit = todo.pop()
        start = run.ends[line - 1] if line else 0
        after = min(bisect.bisect_left(run.ends, start + _PIECE_BYTES) + 1, limit)
        end = run.ends[after - 1]
        if after < limit:
            todo.append((after, limit))
        known = (
            decode_events(view[start:end], after - line)
            if readable
            or _is_readable(run.data[start:end], [each - start for each in run.ends[line:after]])
            else None
        )
        if known is not None:
            events += known
            numbers.append(np.arange(run.first + line, run.first + after))
        elif after - line > _FEW_LINES:
            half = (line + after) // 2
            todo += [(half, after), (line, half)]
        else:
            piece = LineRun(run.data[start:end], run.first + line)
            more_events, more_numbers, more_faults = _one_by_one(piece)
            events += more_events
            numbers.append(more_numbers)
            faults += more_faults
    return events, np.concatenate(numbers), faults


def _one_by_one(run: LineRun) -> tuple[list[AnyEvent], LineNumbers, list[Fault]]:
    """Decode a run line by line, with the same result as `decode_run`."""
    events: list[AnyEvent] = []
    numbers: list[int] = []
    faults: list[Fault] = []
    torn = None if run.data.endswith(b"\n") else run.first + run.count - 1
    for number, line in enumerate(run.data.split(b"\n"), start=run.first):
        event = parse_event(line)
        if event is None:
            continue
        if not isinstance(event, tuple):
            events.append(event)
            numbers.append(number)
        elif number == torn and is_torn(line):
            faults.append((number, "transcript.torn_tail", TORN_TAIL_MESSAGE))
        else:
            faults.append((number, *event))
    return events, np.array(numbers, np.int64), faults


def _is_readable(data: bytes, ends: Sequence[int]) -> bool:
    """Return whether complete lines are valid UTF-8 and none of them is nested too deeply."""
    return _is_utf8(data) and not has_too_deep(data, ends)


def _is_utf8(data: bytes) -> bool:
    """Return whether lines are valid UTF-8, without copying; see `parse.is_utf8` for one line."""
    if data.isascii():
        return True
    buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int64)), pa.py_buffer(data)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
