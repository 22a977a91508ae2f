"""Lines to event structs, each line of a file accounted for: an event, or a fault.

A run of lines is decoded by one native call. What does not fit is decoded again, alone, field by
field: one bad line never costs its neighbours.
"""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Raw

from mcptally.archive import Lines
from mcptally.shapes import EVENT, MEMBERS, MSG, AnyEvent, MessageEvent

Numbers = npt.NDArray[np.int64]
Fault = tuple[int, str, str]
"""Line, rule, message."""

_PIECE: Final = 1 << 16
"""Bytes of an odd run that are tried together again."""


def events_of(run: Lines) -> tuple[list[AnyEvent], Numbers, list[Fault]]:
    """The events of a run of lines, the number of each one's line, and the faults of the rest."""
    known = _at_once(run)
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
        known = _at_once(piece)
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


def _at_once(run: Lines) -> list[AnyEvent] | None:
    """The events of a run in which every line is one."""
    if not _is_utf8(run.data):
        return None
    try:
        events: list[AnyEvent] = EVENT.decode_lines(run.data)
    except (msgspec.DecodeError, RecursionError):
        return None
    return events if len(events) == run.count else None


def _one_by_one(run: Lines) -> tuple[list[AnyEvent], Numbers, list[Fault]]:
    """The same, line by line."""
    events: list[AnyEvent] = []
    numbers: list[int] = []
    faults: list[Fault] = []
    torn = None if run.data.endswith(b"\n") else run.first + run.count - 1
    for number, line in enumerate(run.data.split(b"\n"), start=run.first):
        if not line.strip():
            continue
        event = _event(line)
        if not isinstance(event, tuple):
            events.append(event)
            numbers.append(number)
        elif number == torn:
            message = "the last line is torn: the recorder was stopped, or is still writing"
            faults.append((number, "transcript.torn_tail", message))
        else:
            faults.append((number, *event))
    return events, np.array(numbers, np.int64), faults


def _event(line: bytes) -> AnyEvent | tuple[str, str]:
    """The event of one line, or the rule it breaks and a message."""
    if not _is_utf8(line):
        return "transcript.not_utf8", "the line is not UTF-8"
    try:
        return EVENT.decode(line)
    except RecursionError:
        return "transcript.too_deep", "JSON nested too deep"
    except msgspec.ValidationError as error:
        fault = str(error)
    except msgspec.DecodeError as error:
        return "transcript.not_json", f"not JSON: {error}"
    try:
        members = MEMBERS.decode(line)
        if bytes(members.get("event", b"")) == b'"message"' and "msg" in members:
            raw = members.pop("msg")
            members["msg"] = Raw(b"{}")
            event = EVENT.decode(msgspec.json.encode(members))
            if isinstance(event, MessageEvent):
                event.msg = MSG.one(raw)
                return event
    except (msgspec.DecodeError, RecursionError):
        pass
    return "transcript.not_an_event", f"not an event of transcript format 1: {fault}"


def _is_utf8(data: bytes) -> bool:
    """Whether the bytes are UTF-8; msgspec does not look inside the values it skips."""
    if data.isascii():
        return True
    buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int64)), pa.py_buffer(data)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
