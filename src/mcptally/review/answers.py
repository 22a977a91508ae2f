"""Reads and writes `reviews.jsonl`: one line per answer or sample, without recorded payloads.

The file belongs to the user. Lines are only appended, so that files from several people can be
concatenated. If a person answered a call several times, the newest answer counts.
"""

import datetime
import enum
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from mcptally.errors import UnreadableError, UsageError, reason
from mcptally.tables.ids import digest
from mcptally.tables.outcomes import FAULTS, Fault

NOT_AN_ERROR: Final = "not_an_error"
CANNOT_TELL: Final = "cannot_tell"
WITHDRAWN: Final = "withdrawn"
"""The answer that withdraws an earlier answer by the same person."""
ANSWERS: Final = (*map(str, FAULTS), NOT_AN_ERROR, CANNOT_TELL)
"""The possible answers: the party at fault, no error, or cannot tell."""
KEYS: Final = {
    "c": "caller",
    "a": "account",
    "t": "tool",
    "u": "upstream",
    "n": "network",
    "o": NOT_AN_ERROR,
    "?": CANNOT_TELL,
}
"""Maps keys to answers."""


RATES: Final[Mapping[str, frozenset[str]]] = {
    "failure_rate": frozenset({Fault.TOOL}),
    "refusal_rate": frozenset({Fault.CALLER, Fault.ACCOUNT, Fault.CLIENT}),
    "infrastructure_rate": frozenset({Fault.UPSTREAM, Fault.NETWORK}),
}
"""Maps each rate to the answers that count as hits, in line with mcptally's verdicts."""


class CallKey(NamedTuple):
    """A call's position in its recording, which is the same in all runs and versions."""

    recording: str
    seq: int
    dir: str
    place: int
    """Position in a JSON-RPC batch; 0 for a message outside a batch."""


class Scope(enum.StrEnum):
    """The calls to which an answer applies."""

    CALL = "call"
    GROUP = "group"
    """All calls in the call's group with the same tool definition."""


class Reviewer(enum.StrEnum):
    """The person or program that gave an answer."""

    PERSON = "person"
    PROGRAM = "program"


class Answer(msgspec.Struct, frozen=True, tag_field="kind", tag="answer", omit_defaults=True):
    """A reviewer's answer about a single call or about all calls in its group."""

    recording: str
    seq: int
    dir: str
    answer: str
    """One of `ANSWERS`, or `withdrawn`."""
    who: str
    at: str
    """Time in UTC, in ISO 8601 with microseconds."""
    index: int = 0
    scope: Scope = Scope.CALL
    server: str | None = None
    tool: str | None = None
    group: str | None = None
    """`group_id` of a failed call; null for a call that did not fail."""
    definition: str | None = None
    """Hash of the tool's definition in force."""
    text: str | None = None
    """`text_digest` of the reply; null if the store has no payloads."""
    why: str = ""
    by: Reviewer = Reviewer.PERSON
    verdict: str | None = None
    """The call's verdict when the answer was given; null for a call that worked."""
    rule: str | None = None
    """The rule that determined `verdict`."""

    @property
    def key(self) -> CallKey:
        """The position of the call that the answer is about."""
        return CallKey(self.recording, self.seq, self.dir, self.index)


class Drawn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call drawn for a sample."""

    recording: str
    seq: int
    dir: str
    stratum: str
    """`tool_failure`, `other_error` or `ok`."""
    size: int
    """Number of calls that the drawn call represents: the size of its group, unless the group is
    always drawn."""
    probability: float
    """The probability that the call's group was drawn or, in the stratum `ok`, the call itself."""
    index: int = 0
    group: str | None = None
    verdict: str | None = None
    """The call's verdict when the sample was drawn; null for a call that worked."""

    @property
    def key(self) -> CallKey:
        """The drawn call's position."""
        return CallKey(self.recording, self.seq, self.dir, self.index)


class Sample(msgspec.Struct, frozen=True, tag_field="kind", tag="sample", omit_defaults=True):
    """Calls drawn at random from the frame.

    The frame is the set of calls that the store had when the sample was drawn.
    """

    id: str
    at: str
    who: str
    seed: int
    frame: str
    """Digest of the ids of all calls in the frame."""
    calls: int
    """The number of calls in the frame."""
    n: int
    """Requested number of answers; fewer are drawn if the frame has too few calls or groups."""
    strata: dict[str, int]
    """Number of calls in each stratum."""
    drawn: tuple[Drawn, ...]
    server: str | None = None
    """The server to which the frame is limited; null if it covers all servers."""
    tool: str | None = None
    look: int = 1
    """Position of this sample among all samples drawn from the frame, counted from 1."""


Row = Answer | Sample


class Reviews(msgspec.Struct, frozen=True):
    """The answers and samples in a file, in the order of its lines."""

    answers: tuple[Answer, ...] = ()
    samples: tuple[Sample, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Row]) -> "Reviews":
        """Build `Reviews` from answers and samples, and drop duplicates."""
        distinct: dict[bytes, Row] = {_ENCODER.encode(row): row for row in rows}
        return cls(
            tuple(row for row in distinct.values() if isinstance(row, Answer)),
            tuple(row for row in distinct.values() if isinstance(row, Sample)),
        )

    def current(self) -> dict[tuple[CallKey, str], Answer]:
        """Map each pair of call and reviewer to the newest answer; omit withdrawn answers."""
        newest = {(row.key, row.who): row for row in sorted(self.answers, key=lambda row: row.at)}
        return {key: row for key, row in newest.items() if row.answer != WITHDRAWN}


class AppliedReviews(msgspec.Struct, frozen=True):
    """The answers that count, in the form that `apply` uses."""

    calls: tuple[Answer, ...] = ()
    groups: tuple[Answer, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is at least one answer."""
        return bool(self.calls)


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Row)


def read(path: Path) -> Reviews:
    """Return the answers and samples in a file, or none if the file does not exist.

    Raises:
        UnreadableError: the file cannot be read, or a line is not a row; the message names the
            line.
    """
    if not path.exists():
        return Reviews()
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror or error}") from error
    return Reviews.of(
        _row(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()
    )


def _row(line: bytes, where: str) -> Row:
    try:
        row: Row = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = reason(error)
        said = why if why.startswith("is not") else f"is not an answer: {why}"
        raise UnreadableError(f"{where}: {said}; correct the line or remove it") from error
    if isinstance(row, Answer) and row.answer not in (*ANSWERS, WITHDRAWN):
        raise UnreadableError(
            f"{where}: {row.answer!r} is not an answer; known are {', '.join(ANSWERS)}"
        )
    return row


def append(path: Path, rows: Iterable[Row]) -> None:
    """Append rows to a file; create the file if it does not exist.

    Raises:
        UsageError: the file cannot be written.
    """
    data = b"".join(_ENCODER.encode(row) + b"\n" for row in rows)
    try:
        with path.open("ab+") as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                data = data if file.read(1) == b"\n" else b"\n" + data
            file.write(data)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written: {error.strerror or error}; name another file with "
            "--reviews FILE"
        ) from error


def now() -> str:
    """Return the current time in the format of `Answer.at`."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def user_name() -> str:
    """Return the name of the user who runs this process."""
    import getpass  # noqa: PLC0415  (scoring does not need it)

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def group_id(server: str | None, tool: str | None, template: str) -> str:
    """Return the id of a group: a tool's failed calls that share an error template."""
    return digest("\0".join((server or "", tool or "", template)))


def template_of(template: str | None, outcome: str) -> str:
    """Return a failed call's template or, if it has none, a text that states its outcome."""
    return template if template is not None else f"(no text: {outcome})"


def text_digest(response: str | None) -> str:
    """Return a digest of a reply's `result` or `error` as JSON, or of "" if there is no reply."""
    return hashlib.sha256((response or "").encode()).hexdigest()[:16]
