"""Reads individual calls from transcripts: the frames as recorded, and the stderr around them.

A store contains a call's arguments and result, but neither complete frames nor stderr. Lines are
found by number. A line's recording and `seq` must equal the store's values, so that another file
with the same name is never mistaken for the transcript.
"""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from mcptally.transcript.events import (
    ITEMS_DECODER,
    MEMBERS_DECODER,
    MessageEvent,
    RawFrame,
    StderrEvent,
)
from mcptally.transcript.files import Damage, LineRun, read_lines
from mcptally.transcript.parse import parse_event
from mcptally.transcript.remote import is_url, url_of_path

NEAR_LINES: Final = 200
"""Number of lines searched for stderr before and after a request, and before and after a reply. If
fewer than twice as many lines are between request and reply, all of them are searched."""
NEAR_NS: Final = 1_000_000_000
"""Nanoseconds before the request and after the reply within which stderr belongs to a call."""
MAX_BEFORE: Final = 5
"""Maximum number of lines of stderr before the request."""
MAX_DURING: Final = 40
"""Maximum number of stderr lines between request and reply. The last lines are kept or, without a
reply, the first lines."""
MAX_AFTER: Final = 20
"""Maximum number of lines of stderr after the reply."""

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_STDERR: Final = re.compile(rb'"event"\s*:\s*"stderr"')


class Position(NamedTuple):
    """Where a message is recorded."""

    file: str
    line: int
    """Number of the line, counted from 1."""
    seq: int
    batch_index: int
    """Position in a JSON-RPC batch; 0 for a message outside a batch."""


class CallPosition(NamedTuple):
    """Where a call is recorded."""

    recording: str
    request: Position
    reply: Position | None


@dataclasses.dataclass(slots=True)
class RecordedCall:
    """The frames and the stderr of a call, read from its transcript."""

    request: str | None = None
    """The JSON-RPC frame as recorded: only the call's member if it is a batch, only the head if it
    is truncated."""
    reply: str | None = None
    stderr: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Lines of the server's stderr `before` the request, `during` the call, `after` the reply.

    Some lines may be about other calls that the server processed at the same time. Terminal colours
    are removed."""
    not_read: str | None = None
    """Why the transcript could not be read to its end; None if it could."""


class _Stderr(NamedTuple):
    recording: str
    ts_ns: int
    text: str


@dataclasses.dataclass(slots=True)
class _File:
    """The numbers of the lines to read from a transcript, and the lines found."""

    wanted: dict[int, set[tuple[str, int]]] = dataclasses.field(
        default_factory=lambda: defaultdict(set)
    )
    """Maps line numbers to the recording and `seq` of the messages that are expected there."""
    searched: set[int] = dataclasses.field(default_factory=set)
    """Numbers of the lines that are searched for stderr."""
    lines: dict[int, tuple[int, bytes]] = dataclasses.field(default_factory=dict)
    """Maps the line number of each wanted message to the message's time and the line."""
    stderr: list[_Stderr] = dataclasses.field(default_factory=list)
    not_read: str | None = None


def read_calls(
    places: Sequence[CallPosition], *, most_bytes: int, folder: Path
) -> list[RecordedCall]:
    """Read calls from their transcripts.

    Args:
        places: where the calls are recorded; calls are read in this order until `most_bytes` are
            used.
        most_bytes: maximum number of decompressed bytes to read from all files together. A file is
            read up to the last line that belongs to one of these calls.
        folder: the folder to which file names are relative. A file that does not exist in this
            folder is read from the current folder.

    Returns:
        The calls in the order of `places`; `not_read` says why a call could not be read.
    """
    files: dict[str, _File] = defaultdict(_File)
    for place in places:
        _want(files, place)
    left = most_bytes
    for name, file in files.items():
        left = _read(name, file, left, folder)
    return [_call(files, place) for place in places]


def _want(files: Mapping[str, _File], place: CallPosition) -> None:
    """Add to a call's files the numbers of its lines and of the surrounding lines to search."""
    ends = [place.request] if place.reply is None else [place.request, place.reply]
    for end in ends:
        files[end.file].wanted[end.line].add((place.recording, end.seq))
    spans = [(end.file, end.line, end.line) for end in ends]
    if place.reply is not None and place.reply.file == place.request.file:
        first, last = sorted(end.line for end in ends)
        if last - first <= 2 * NEAR_LINES:
            spans = [(place.request.file, first, last)]
    for file, first, last in spans:
        files[file].searched.update(range(max(1, first - NEAR_LINES), last + NEAR_LINES + 1))


def _read(name: str, file: _File, left: int, folder: Path) -> int:
    """Read the wanted lines of a file; return how many bytes may still be read."""
    if is_url(name) or url_of_path(Path(name)):
        file.not_read = f"{name} is not on this machine"
        return left
    if left <= 0:
        file.not_read = f"{name} was not read: the limit for reading transcripts was reached"
        return left
    last = max(file.searched)
    path = folder / name
    for run in read_lines(path if path.exists() else Path(name)):
        if isinstance(run, Damage):
            file.not_read = f"{name}: {run.message}"
            break
        if run.first > last:
            break
        left -= len(run.data)
        _search(run, file)
        end = run.first + run.count - 1
        if left <= 0 and end < last:
            file.not_read = (
                f"{name} was not read after line {end}: the limit for reading transcripts was "
                "reached"
            )
            break
    return left


def _search(run: LineRun, file: _File) -> None:
    """Add the wanted messages and stderr lines among `run`'s lines to `file`."""
    for number in sorted(file.searched.intersection(range(run.first, run.first + run.count))):
        line = run.line(number)
        expected = file.wanted.get(number)
        # Lines are long: exclude most of them without using the regular expression.
        if expected is None and not (b'"stderr"' in line and _STDERR.search(line)):
            continue
        event = parse_event(line)
        if isinstance(event, StderrEvent):
            if event.text is not None:
                text = _COLOURS.sub("", event.text)
                file.stderr.append(_Stderr(event.recording, event.ts_ns, text))
        elif (
            expected is not None
            and isinstance(event, MessageEvent | RawFrame)
            and (event.recording, event.seq) in expected
        ):
            file.lines[number] = (event.ts_ns, line)


def _call(files: Mapping[str, _File], place: CallPosition) -> RecordedCall:
    """Return a call, built from the lines found in its files."""
    request, not_read = _found(files, place.request)
    if request is None:
        return RecordedCall(not_read=not_read)
    reply = None
    if place.reply is not None:
        reply, not_read = _found(files, place.reply)
    names = dict.fromkeys(end.file for end in (place.request, place.reply) if end is not None)
    stderr = [
        each for name in names for each in files[name].stderr if each.recording == place.recording
    ]
    return RecordedCall(
        _frame(request[1], place.request.batch_index),
        _frame(reply[1], place.reply.batch_index) if reply and place.reply else None,
        _around(stderr, request[0], reply[0] if reply else None, answered=place.reply is not None),
        not_read,
    )


def _found(
    files: Mapping[str, _File], end: Position
) -> tuple[tuple[int, bytes] | None, str | None]:
    """Return a message's time and line, or the reason why it was not found."""
    file = files[end.file]
    if found := file.lines.get(end.line):
        return found, None
    return None, file.not_read or f"{end.file}:{end.line} has changed since it was scored"


def _frame(line: bytes, batch_index: int) -> str | None:
    """Return the JSON-RPC frame on a line, as recorded; None if it is not text."""
    members = MEMBERS_DECODER.decode(line)
    if "msg" not in members:
        try:
            return msgspec.json.decode(members["text"], type=str)
        except (KeyError, msgspec.DecodeError):
            return None
    frame = bytes(members["msg"])
    if frame.startswith(b"["):
        batch = ITEMS_DECODER.decode(frame)[batch_index : batch_index + 1]
        return bytes(batch[0]).decode() if batch else None
    return frame.decode()


def _around(
    stderr: Iterable[_Stderr], asked: int, replied: int | None, *, answered: bool
) -> dict[str, str]:
    """Return the stderr lines before, during and after a call.

    A period without lines is omitted from the result.
    """
    ends = asked if replied is None else replied
    parts: dict[str, list[str]] = {"before": [], "during": [], "after": []}
    for line in stderr:
        if asked - NEAR_NS <= line.ts_ns < asked:
            parts["before"].append(line.text)
        elif asked <= line.ts_ns and (line.ts_ns <= ends or not answered):
            parts["during"].append(line.text)
        elif ends < line.ts_ns <= ends + NEAR_NS:
            parts["after"].append(line.text)
    kept = {
        "before": _last(parts["before"], MAX_BEFORE),
        "during": _last(parts["during"], MAX_DURING) if answered else parts["during"][:MAX_DURING],
        "after": parts["after"][:MAX_AFTER],
    }
    return {name: "\n".join(lines) for name, lines in kept.items() if lines}


def _last(lines: list[str], most: int) -> list[str]:
    """Return the last `most` lines; if they start inside a PEM key, prepend the key's first line.

    Redaction recognises the lines of a key by its first line.
    """
    marks = [line for line in lines[:-most] if "-----" in line]
    begin = marks[-1:] if marks and "-----BEGIN" in marks[-1] else []
    return begin + lines[-most:]
