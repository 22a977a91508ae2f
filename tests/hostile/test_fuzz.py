"""Random input with fixed budgets. Each docstring states the property that must always hold.

Importers are fuzzed in tests/importers/test_damage.py, frames of HTTP in tests/record.
"""

import base64
import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings, target
from hypothesis import strategies as st

import mcptally as mt
from mcptally.errors import RuleError
from mcptally.pipeline.scoring import ScoringRules
from mcptally.transcript.files import _FOREIGN_MAGIC
from tests.hostile import fuzz
from tests.hostile.scored_archive import recording
from tests.transcripts import c2s, call, event, opened, s2c, text

pytestmark = pytest.mark.slow


def budget(examples: int) -> settings:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(max_examples=examples, deadline=None, suppress_health_check=slow)


EVENTS = [
    opened(),
    c2s(1, call(1)),
    s2c(2, text(1)),
    c2s(3, [call(2), call("x")]),
    event("raw", 4, dir="s2c", why="too_large", id=1, method="tools/call", bytes=9, text="{"),
    event("stderr", 5, text="words"),
    event("http", 6, dir="c2s", phase="request", scope="a", headers={"mcp-session-id": "s"}),
    event("gap", 7, lost=1, why="full"),
    event("close", 8, reason="eof", counts={"message": 3}),
]

NUMBERS = st.integers() | st.floats() | st.sampled_from([2**63, 2**64, -1, 10**400, 0.5, 1e308])
WORDS = st.text(max_size=8) | st.sampled_from(
    ["c2s", "tools/call", "\0", "\ud800", "\u202e", "x" * 300, "initialize", "tools/list"]
)
SCALARS = st.none() | st.booleans() | NUMBERS | WORDS
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(WORDS, v, max_size=3), max_leaves=6
)


@st.composite
def mutated_event(draw: st.DrawFn) -> bytes:
    """An event with something replaced, removed, duplicated, truncated or overwritten."""
    line = json.loads(json.dumps(draw(st.sampled_from(EVENTS))))
    for _ in range(draw(st.integers(0, 3))):
        node: Any = line
        while True:
            places = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not places:
                break
            place = draw(st.sampled_from(places))
            if isinstance(node[place], dict | list) and node[place] and draw(st.booleans()):
                node = node[place]
                continue
            if draw(st.booleans()):
                node[place] = draw(VALUES)
            else:
                del node[place]
            break
    data = json.dumps(line, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=4)) + data[at + draw(st.integers(0, 4)) :]
    if draw(st.integers(0, 9)) == 0:
        data = data[: draw(st.integers(0, len(data)))]
    return data


FILES = st.tuples(
    st.lists(mutated_event() | st.binary(max_size=30), max_size=8), st.booleans()
).map(lambda parts: b"\n".join(parts[0]) + b"\n" * parts[1])


@budget(25)
@given(FILES)
@example(b"\n\n\x0b\n")
@example(b'{"v":1}\r\n{"v":1')
@example(b'{"v":1,"event":"stderr","recording":"r","seq":1,"ts_ns":1}\xff')
def test_every_line_is_accounted_for(data: bytes) -> None:
    """Every line is an event, blank, or has a finding; and `check` agrees."""
    if data.startswith((b"\x1f\x8b", b"\x28\xb5", *_FOREIGN_MAGIC)):
        return
    with tempfile.TemporaryDirectory() as folder:
        target(float(fuzz.accounted(Path(folder), data)))


@budget(3)
@given(st.lists(FILES, min_size=1, max_size=3))
def test_score_raises_only_errors_of_mcptally(files: list[bytes]) -> None:
    """A run ends with a store in which the innocent call is `ok`, whatever the other files are."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "archive").mkdir()
        for number, data in enumerate(files):
            (folder / "archive" / f"{number}.jsonl").write_bytes(data)
        (folder / "archive" / "z.jsonl").write_bytes(recording("innocent"))
        mt.score(folder / "archive", out=folder / "store")
        store = mt.open_store(folder / "store")
        rows = store.sql("SELECT outcome FROM calls WHERE recording = 'innocent'").fetchall()
        assert rows == [("ok",)]
        target(float(store.sql("SELECT count(*) FROM findings").fetchall()[0][0]))


EDGES = ("", " ", ":", "=", "/", '"', "'", "{", "[", ",", "\\", "\n", '="', "Bearer ")


@budget(200)
@given(VALUES, st.sampled_from(EDGES), st.booleans())
def test_a_secret_is_redacted_at_any_position(
    value: Any,
    edge: str,
    nested: bool,
) -> None:
    """A known token is redacted as a value, as a name, inside a text and inside nested JSON."""
    words = f"{edge}{fuzz.SECRET}{edge}"
    inner: Any = {"a": words, words: value, "list": [words, value]}
    frame = json.dumps({"x": json.dumps(inner) if nested else inner}).encode()
    clean, count = fuzz.HIDE.json(frame)
    assert fuzz.SECRET.encode() not in clean
    assert count
    json.loads(clean)


KEPT_SAFE = [
    b'"text":"%b"' % fuzz.SECRET.encode(),
    b'"msg":{"a":"%b"}' % fuzz.SECRET.encode(),
    b'"url":"http://x/?token=%b"' % fuzz.SECRET.encode(),
    b'"scope":"%b"' % fuzz.SECRET.encode(),
    b'"recording":"%b"' % fuzz.SECRET.encode(),
    b'"counts":{"%b":1}' % fuzz.SECRET.encode(),
    b'"%b":1' % fuzz.SECRET.encode(),
    b'"headers":{"x-odd":"zebra-7731"}',
    b'"command":["x","--token","zebra-7731"]',
    b'"b64":"%b"' % base64.b64encode(b"\xff\xff\xff" + fuzz.SECRET.encode()),
]
"""Members with a secret. The strategy changes only the bytes around them."""
LEAKS = [fuzz.SECRET.encode(), b"zebra-7731", base64.b64encode(fuzz.SECRET.encode())[:-4]]


@st.composite
def planted(draw: st.DrawFn) -> bytes:
    """Events with secrets, in which any other byte may be changed, removed or preceded by more."""
    parts: list[bytes] = []
    for _ in range(draw(st.integers(1, 4))):
        line = json.dumps(draw(st.sampled_from(EVENTS))).encode()
        at = draw(st.sampled_from([i for i, c in enumerate(line) if c == 0x2C and i < 90]))
        parts += [line[: at + 1], draw(st.sampled_from(KEPT_SAFE)), line[at:], b"\n"]
    for _ in range(draw(st.integers(0, 5))):
        place = draw(st.integers(0, len(parts) - 1))
        part = parts[place]
        if part not in KEPT_SAFE:
            at = draw(st.integers(0, len(part)))
            odd = draw(st.binary(max_size=4) | st.sampled_from([b"\xff", b'"', b"\\", b"{", b"}"]))
            parts[place] = part[:at] + odd + part[at + draw(st.integers(0, 3)) :]
    return b"".join(parts)


@budget(int(os.environ.get("MCPTALLY_FUZZ", "100")))
@given(planted())
def test_no_copy_has_a_secret_from_a_damaged_line(data: bytes) -> None:
    """The copy has the same lines and no planted secret; redacting it again changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        copy = fuzz.copied(Path(folder), b'{"v":1}\n' + data)
        assert not [leak for leak in LEAKS if leak in copy]


@budget(int(os.environ.get("MCPTALLY_FUZZ", "60")))
@given(FILES)
def test_any_file_is_copied_without_a_traceback(data: bytes) -> None:
    """`redact` copies each line, and `check` reads the whole file."""
    with tempfile.TemporaryDirectory() as folder:
        fuzz.copied(Path(folder), b'{"v":1}\n' + data)


RULES = """
[[rule]]
id = "mine.one"
title = "t"
source = "s"
verdict = "business"
reason = "refused"
any = ["no way"]
fires = ["no way"]
silent = ["fine"]
"""


@budget(50)
@given(st.data())
def test_any_rule_file_loads_or_gives_a_rule_error(data: st.DataObject) -> None:
    """Any text, TOML or not, gives rules or a RuleError; nothing in it is executed."""
    lines = RULES.strip().split("\n")
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        name = data.draw(
            st.sampled_from(["id", "any", "all", "regex", "code", "fires", "x", "when"])
        )
        value = data.draw(VALUES)
        lines[place] = data.draw(
            st.sampled_from([f"{name} = {json.dumps(value)}", "", repr(value), "[[rule]]"])
        )
    with tempfile.TemporaryDirectory() as place_:
        path = Path(place_) / "rules.toml"
        path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
        with contextlib.suppress(RuleError):
            ScoringRules.of(rules=path)


GUIDED_RUNS = {
    "framing": 1000,
    "decoding": 50,
    "redaction": 4000,
    "copying": 150,
}


@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="no atheris (not every Python has it): pip install --only-binary atheris -e '.[fuzz]'",
)
def test_coverage_guided_fuzzing_finds_nothing(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """The properties in fuzz.py hold for a fixed number of coverage-guided runs."""
    for name, runs in GUIDED_RUNS.items():
        with subtests.test(name):
            folder = tmp_path / name
            folder.mkdir()
            # The target `redaction` ignores input that is not strict JSON.
            seed = recording().splitlines()[1] if name == "redaction" else b"\x03" + recording()
            (folder / "seed").write_bytes(seed)
            words = [sys.executable, "-m", "tests.hostile.fuzz", name]
            words += [f"-runs={runs}", "-seed=1", "-max_len=2000", str(folder)]
            steady = {**os.environ, "PYTHONHASHSEED": "0"}
            done = subprocess.run(
                words, capture_output=True, text=True, check=False, timeout=600, env=steady
            )
            assert done.returncode == 0, done.stderr[-3000:]
            [done_runs] = re.findall(r"^Done (\d+) runs", done.stderr, re.MULTILINE)
            assert int(done_runs) >= runs  # libFuzzer may make one more
