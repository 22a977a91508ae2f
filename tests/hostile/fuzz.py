"""Coverage-guided fuzzing of framing and decoding, by atheris (libFuzzer).

    python -m tests.hostile.fuzz framing|decoding|redaction|copying [-runs=N] [CORPUS]

The test suite runs each target a fixed number of times; longer runs are started by hand.
docs/explanation/threat-model.md lists what was found.
"""

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from mcptally.errors import UnreadableError
from mcptally.messages.decode import decode
from mcptally.redaction.policy import policy
from mcptally.transcript.check import check
from mcptally.transcript.redact import redact
from mcptally.wire.framing import FrameSplitter, TruncatedFrame
from mcptally.wire.strict_json import strict_json_error

CAP = 64


def framing(data: bytes) -> None:
    """Frames do not depend on chunk boundaries, and together contain all bytes."""
    if not data:
        return
    cut, body = data[0] % 16 + 1, data[1:]
    whole, parts = FrameSplitter(cap=CAP), FrameSplitter(cap=CAP)
    expected = [*whole.feed(body), whole.end()]
    pieces = [p for at in range(0, len(body), cut) for p in parts.feed(body[at : at + cut])]
    assert [*pieces, parts.end()] == expected
    frames = [line.removesuffix(b"\r") for line in body.split(b"\n")[:-1]]
    frames += [last] if (last := body.rsplit(b"\n", 1)[-1]) else []
    said = [piece for piece in expected if piece is not None]
    assert [p.size if isinstance(p, TruncatedFrame) else len(p) for p in said] == [
        *map(len, frames)
    ]
    assert all(p == f for p, f in zip(said, frames, strict=True) if isinstance(p, bytes))


def decoding(data: bytes) -> None:
    """Every line is an event, blank, or has a finding; and `check` agrees."""
    with tempfile.TemporaryDirectory() as folder:
        accounted(Path(folder), b'{"v":1,' + data)


def accounted(folder: Path, data: bytes) -> int:
    """Check that every line of a file is an event or reported; return the number of events."""
    path = folder / "a.jsonl"
    path.write_bytes(data)
    events = decode([path], ["a.jsonl"])
    frames = (events.messages, events.raws, events.http, events.opens)
    frames += (events.closes, events.gaps, events.stderr)
    known = {line for frame in frames for line in frame.get_column("line")}
    found = events.findings.drop_nulls("line")
    faulty = set(found.get_column("line"))
    texts = data.split(b"\n")
    filled = {n for n, line in enumerate(texts, start=1) if line.strip()}
    assert known | faulty == filled
    assert not known & faulty
    try:
        told = check([path])
    except UnreadableError:
        assert not known
    else:
        assert told.events == len(known)
        unread = sum(len(texts[n - 1]) + (n < len(texts)) for n in faulty)
        assert sum(file.bytes_not_read for file in told.damaged_files) == unread
    return len(known)


HIDE = policy("default")
SECRET = "ghp_" + "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8xC0uR5tY1"


def redaction(data: bytes) -> None:
    """Redacted JSON is strict JSON, keeps its shape, and does not change when redacted again."""
    if strict_json_error(data) is not None:
        return
    clean, count = HIDE.json(data)
    assert HIDE.json(clean)[0] == clean
    assert _shape(json.loads(clean)) == _shape(json.loads(data)) or count
    assert strict_json_error(clean) is None


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shape(item) for item in value]
    return type(value).__name__


def copying(data: bytes) -> None:
    """`redact` copies any bytes line by line, and redacting the copy changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        copied(Path(folder), b'{"v":1,' + data)


def copied(folder: Path, data: bytes) -> bytes:
    """Check that the redacted copy of a file has the same lines, and return the copy."""
    source = folder / "a.jsonl"
    source.write_bytes(data)
    first = redact([source], folder / "1")
    again = redact([folder / "1"], folder / "2")
    copy = (folder / "1" / "a.jsonl").read_bytes()
    assert (folder / "2" / "a.jsonl").read_bytes() == copy
    assert again.redacted == 0
    assert not again.withheld
    if not first.dropped:
        lines = [line.strip() for line in data.split(b"\n")]
        assert [bool(line.strip()) for line in copy.split(b"\n")] == list(map(bool, lines))
    with contextlib.suppress(UnreadableError):
        check([source])
    return copy


TARGETS: dict[str, Callable[[bytes], None]] = {
    "framing": framing,
    "decoding": decoding,
    "redaction": redaction,
    "copying": copying,
}


def main() -> None:
    """Fuzz one target; libFuzzer takes the other arguments."""
    import atheris

    name = sys.argv.pop(1)
    if name not in TARGETS:
        sys.exit(f"no target is called {name!r}: {', '.join(TARGETS)}")
    splitter = FrameSplitter.feed, FrameSplitter.end, FrameSplitter._keep, FrameSplitter._take
    for function in (TARGETS[name], *splitter, accounted, redact, copied):
        atheris.instrument_func(function)
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
