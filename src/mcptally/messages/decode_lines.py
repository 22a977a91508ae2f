"""Lines to event structs, each line of a file accounted for: an event, or a fault.

A run of lines is decoded by one native call. What does not fit is decoded again, alone, field by
field: one bad line never costs its neighbours.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mcptally.transcript.events import AnyEvent
from mcptally.transcript.files import Lines
from mcptally.transcript.parse import TORN, at_once, event_of, is_torn

Numbers = npt.NDArray[np.int64]
"""Numbers of lines, counted from 1."""
Fault = tuple[int, str, str]
"""Line, rule, message."""

_PIECE: Final = 1 << 14
"""Bytes of an odd run that are tried together again."""


def events_of(run: Lines) -> tuple[list[AnyEvent], Numbers, list[Fault]]:
    """The events of a run of lines, the number of each one's line, and the faults of the rest."""
    known = at_once(run.data, run.count, _is_utf8)
    if known is not None:
        return known, np.arange(run.first, run.first + run.count), []
    if len(run.data) <= _PIECE:
        return _one_by_one(run)
    # Only the neighbourhood of an odd line is looked at line by line.
    events: list[AnyEvent] = []
    numbers: list[Numbers] = []
    faults: list[Fault] = []
    begin, first = 0, run.first
    while begin < len(run.data):
        end = run.data.find(b"\n", begin + _PIECE) + 1 or len(run.data)
        data = run.data[begin:end]
        piece = Lines(data, first, data.count(b"\n") + (not data.endswith(b"\n")))
        known = at_once(data, piece.count, _is_utf8)
        if known is not None:
            events += known
            numbers.append(np.arange(first, first + piece.count))
        else:
            some, places, wrong = _one_by_one(piece)
            events += some
            numbers.append(places)
            faults += wrong
        begin, first = end, first + piece.count
    return events, np.concatenate(numbers), faults


def _one_by_one(run: Lines) -> tuple[list[AnyEvent], Numbers, list[Fault]]:
    """The same, line by line."""
    events: list[AnyEvent] = []
    numbers: list[int] = []
    faults: list[Fault] = []
    torn = None if run.data.endswith(b"\n") else run.first + run.count - 1
    for number, line in enumerate(run.data.split(b"\n"), start=run.first):
        event = event_of(line)
        if event is None:
            continue
        if not isinstance(event, tuple):
            events.append(event)
            numbers.append(number)
        elif number == torn and is_torn(line):
            faults.append((number, "transcript.torn_tail", TORN))
        else:
            faults.append((number, *event))
    return events, np.array(numbers, np.int64), faults


def _is_utf8(data: bytes) -> bool:
    """`reading.is_utf8` of many lines, without a copy of them."""
    if data.isascii():
        return True
    buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int64)), pa.py_buffer(data)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
