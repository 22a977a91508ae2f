"""Damaged, torn and hostile sources: never a crash, and every record accounted for."""

import gzip
import json
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptally.check import check
from mcptally.imports import FORMATS, import_logs
from mcptally.imports.clock import duration, moment, zone
from mcptally.imports.elements import elements
from mcptally.imports.items import Item, Pipe
from mcptally.imports.spool import in_order
from tests.imports import styles
from tests.imports.rig import SAMPLES, TRACES, balanced, events

HTTP = styles.har(events(TRACES / "everything-http.jsonl.zst")[:60]).encode()
TIME = events(TRACES / "time.jsonl")[:40]
CODEX = (
    b'{"timestamp":"2026-03-01T10:00:00Z","type":"event_msg","payload":{"type":"mcp_tool_call_end",'
    b'"call_id":"c","invocation":{"server":"s","tool":"t","arguments":{}},"duration":{"secs":1,'
    b'"nanos":0},"result":{"Ok":{"content":[]}}}}\n'
)
CODE = (
    b'{"debug":"Calling MCP tool: x","timestamp":"2026-03-01T10:00:00Z","sessionId":"s",'
    b'"cwd":"/"}\n'
    b'{"debug":"Tool \'x\' completed successfully in 1ms","timestamp":"2026-03-01T10:00:01Z",'
    b'"sessionId":"s","cwd":"/"}\n'
    b'{"type":"assistant","message":{"content":[{"type":"tool_use","id":"a","name":"mcp__s__t",'
    b'"input":{}}]},"timestamp":"2026-03-01T10:00:00Z","sessionId":"s","cwd":"/"}\n'
    b'{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]},'
    b'"timestamp":"2026-03-01T10:00:01Z","sessionId":"s","cwd":"/"}\n'
)
SNOOP = (
    b'{"session_id":"s","server_label":"l","ts":"2026-03-01T10:00:00Z","direction":"c2s",'
    b'"transport":"stdio","raw":{"jsonrpc":"2.0","id":1,"method":"ping"}}\n'
) * 3

WHOLE = {
    "claude-desktop": styles.claude_desktop(TIME).encode(),
    "claude-code": CODE,
    "codex": CODEX * 2,
    "vscode": styles.vscode(TIME).encode(),
    "har": HTTP,
    "otlp": gzip.decompress((SAMPLES / "spans-server.jsonl.gz").read_bytes())[:20_000],
    "mcpsnoop": SNOOP,
    "jsonrpc": styles.bare(TIME).encode(),
}


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """The file with some of it cut, repeated or overwritten."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(["overwrite", "cut", "insert", "end"])):
            case "overwrite":
                words = draw(st.binary(min_size=1, max_size=8))
                data[place : place + len(words)] = words
            case "cut":
                del data[place : place + draw(st.integers(1, 200))]
            case "insert":
                data[place:place] = draw(
                    st.sampled_from(
                        [b"\n", b'"', b"{", b"]", b"\x00", b"\xff", b"null", b"[" * 2000, b"1e999"]
                    )
                )
            case "end":
                del data[place:]
    return bytes(data)


def imported(form: str, data: bytes, **options: object) -> None:
    """Import one file; what is written is a whole archive, and every record is accounted for."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "mcp-server-x.log"
        source.write_bytes(data)
        out = Path(folder) / "t"
        done = import_logs(source, out, format=form, timezone="UTC", **options)
        assert balanced(done)
        assert not list(out.glob("*.part"))
        if done.recordings:
            answer = check([out])
            gaps = any("says so in a gap" in p for r in answer.recordings for p in r.problems)
            assert answer.whole or gaps, answer
        report = json.loads(done.files[0].report.read_text())
        rest = sum(found["count"] for found in report["unused"].values())
        assert report["records"] == report["used"] + sum(report["context"].values()) + rest


@pytest.mark.parametrize("form", WHOLE)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_damaged_file_gives_a_whole_archive_and_a_full_account(form, data):
    imported(form, data.draw(damaged(WHOLE[form])))


@pytest.mark.parametrize("form", sorted(set(FORMATS) - {"mcphawk"}))
@settings(max_examples=15, deadline=None)
@given(data=st.binary(max_size=400))
def test_any_garbage_is_accounted_for(form, data):
    imported(form, data)


@settings(max_examples=30, deadline=None)
@given(place=st.integers(0, 60_000), words=st.binary(min_size=1, max_size=400))
def test_a_damaged_database_never_stops_the_import(place, words):
    data = bytearray((SAMPLES / "mcphawk.db").read_bytes())
    data[100 + place : 100 + place + len(words)] = words
    imported("mcphawk", bytes(data))


def test_rows_of_other_types_in_a_database_are_counted(tmp_path):
    copy = tmp_path / "x.db"
    copy.write_bytes((SAMPLES / "mcphawk.db").read_bytes())
    with sqlite3.connect(copy) as connection:
        connection.execute("UPDATE messages SET ts = 'soon' WHERE id = 3")
    connection.close()
    done = import_logs(copy, tmp_path / "t")
    assert balanced(done)
    assert {w: p.count for w, p in done.files[0].tally.unused.items()} == {
        "a row with values of other types": 1
    }


def test_a_cut_gzip_file_gives_what_is_there(tmp_path):
    whole = gzip.compress(WHOLE["claude-desktop"] * 40)
    (tmp_path / "mcp-server-time.log.gz").write_bytes(whole[: len(whole) // 2])
    done = import_logs(tmp_path / "mcp-server-time.log.gz", tmp_path / "t")
    assert done.recordings > 3
    assert done.lost >= 1
    assert balanced(done)


# --- the parts --------------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)
_OBJECTS = st.lists(st.dictionaries(st.text(max_size=8), _JSON, max_size=4), max_size=6)


@settings(max_examples=200, deadline=None)
@given(_OBJECTS, _JSON, st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
def test_elements_are_those_of_the_array_however_the_bytes_are_cut(
    objects, other, size, indent, ascii_
):
    document = {"a": {"entries": [{"no": 1}]}, "log": {"x": other, "entries": objects}, "z": other}
    if isinstance(other, dict) and "entries" in str(other):
        document["log"].pop("x")
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_).encode(errors="replace")
    cut = [text[n : n + size] for n in range(0, len(text), size)]
    found = list(elements(cut, ("log", "entries")))
    plain = json.loads(text)["log"]["entries"]
    assert [json.loads(e.data) for e in found] == plain
    if indent and objects:
        lines = text.decode().split("\n")
        assert all(lines[e.line - 1].strip().startswith("{") for e in found)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 50)), max_size=60), st.integers(1, 2000))
def test_items_come_in_order_of_time_whatever_the_memory(times, batch):
    items = [
        Item(what="message", line=n, pipe=Pipe("s"), at=at, data=b"%d" % n)
        for n, at in enumerate(times)
    ]
    found = list(in_order(iter(items), batch=batch))
    assert found == list(in_order(iter(items)))
    assert sorted(i.line for i in found) == list(range(len(times)))
    known = [i.at for i in found if i.at is not None]
    assert known == sorted(known)


TIMES = {
    "2026-03-01T09:44:53.641Z": 1772358293641000000,
    "2026-03-01T09:44:53.123456789Z": 1772358293123456789,
    "2026-03-01 10:44:53,5+01:00": 1772358293500000000,
    "2026-03-01 09:44:53": 1772358293000000000,
    "1772358293": 1772358293000000000,
    "1772358293641": 1772358293641000000,
}


@pytest.mark.parametrize(("text", "ns"), TIMES.items(), ids=TIMES)
def test_times_are_read_as_programs_write_them(text, ns):
    assert moment(text, zone("UTC")) == ns


def test_numbers_tell_their_unit_by_their_size():
    for value in (1772358293, 1772358293000, 1772358293000000, 1772358293000000000):
        assert moment(value) == 1772358293000000000
    assert moment(1772358293.25) == 1772358293250000000
    assert moment("2026-03-01 09:44:53", zone("+02:00")) == 1772351093000000000


@given(st.one_of(_JSON, st.floats(), st.text(max_size=40)))
def test_what_is_no_time_is_none(value):
    found = moment(value, zone("UTC"))
    assert found is None or 0 < found < 2**63


@pytest.mark.parametrize(
    ("text", "ns"),
    [("505ms", 505_000_000), ("0s", 0), ("1m 5s", 65 * 10**9), ("2.5s", 25 * 10**8), ("5", None)],
)
def test_durations_are_read(text, ns):
    assert duration(text) == ns
