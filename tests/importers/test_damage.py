"""Damaged and hostile sources never crash an import, and every record is counted."""

import gzip
import json
import os
import sqlite3
import tempfile
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptally.importers import FORMATS, call_records, import_logs
from mcptally.importers.detect import detect_format
from mcptally.importers.formats import mcphawk
from mcptally.importers.items import Connection, Item, Tally
from mcptally.importers.json_array import elements
from mcptally.importers.run import sorted_by_time
from mcptally.importers.sqlite_tables import is_database
from mcptally.importers.timestamps import parse_duration, parse_timestamp, parse_timezone
from mcptally.transcript.check import check
from tests.importers import styles
from tests.importers.imported_logs import (
    SAMPLES,
    TRACES,
    WRITTEN,
    all_records_accounted_for,
    events,
)
from tests.strategies import JSON_VALUES

PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
HAR = json.loads(gzip.decompress((SAMPLES / "mitmproxy.har.gz").read_bytes()))["log"]
TIME = events(TRACES / "time.jsonl")[:40]
LINES = {
    form: [json.dumps(line) for line in lines]
    for form, lines in json.loads((WRITTEN / "lines.json").read_text()).items()
}
"""Format → its lines, as JSON."""
CODE = LINES["claude-code"]
[CODEX] = LINES["codex"]


def lines(form: str, times: int = 1) -> bytes:
    return "".join(f"{line}\n" for line in LINES[form] * times).encode()


WHOLE = {
    "claude-desktop": styles.claude_desktop(TIME).encode(),
    "claude-code": lines("claude-code"),
    "codex": lines("codex", 2),
    "vscode": styles.vscode(TIME).encode(),
    "har": json.dumps({"log": HAR | {"entries": HAR["entries"][:8]}}).encode(),
    "otlp": gzip.decompress((SAMPLES / "spans-server.jsonl.gz").read_bytes())[:20_000],
    "mcpsnoop": lines("mcpsnoop", 3),
    "jsonrpc": styles.bare(TIME).encode(),
    **{
        form: gzip.decompress((SAMPLES / sample).read_bytes())[:20_000]
        for form, sample in (
            ("sentry", "sentry.jsonl.gz"),
            ("langsmith", "langsmith.jsonl.gz"),
            ("langfuse", "langfuse.json.gz"),
            ("litellm", "litellm.jsonl.gz"),
        )
    },
}


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """The file with parts of it removed, inserted or overwritten."""
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
    """Import one file; assert that the output is complete and every record is counted."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "mcp-server-x.log"
        source.write_bytes(data)
        out = Path(folder) / "t"
        done = import_logs(source, out, format=form, timezone="UTC", **options)
        assert all_records_accounted_for(done)
        assert not list(out.glob("*.part"))
        if done.recordings:
            answer = check([out])
            gaps = any("as its gap events say" in p for r in answer.recordings for p in r.problems)
            assert answer.whole or gaps, answer
        report = json.loads(done.files[0].report.read_text())
        rest = sum(found["count"] for found in report["unused"].values())
        assert report["records"] == report["used"] + sum(report["context"].values()) + rest


@pytest.mark.slow
@pytest.mark.parametrize("form", WHOLE)
@settings(max_examples=2 * settings.default.max_examples // 5, deadline=None)
@given(data=st.data())
def test_a_damaged_file_gives_a_whole_archive_and_every_record_is_counted(form, data):
    imported(form, data.draw(damaged(WHOLE[form])))


@pytest.mark.slow
@pytest.mark.parametrize("form", sorted(set(FORMATS) - {"mcphawk"}))
@settings(max_examples=settings.default.max_examples // 3, deadline=None)
@given(data=st.binary(max_size=400))
def test_every_record_of_garbage_is_counted(form, data):
    imported(form, data)


@settings(max_examples=3 * settings.default.max_examples // 5, deadline=None)
@given(place=st.integers(0, 60_000), words=st.binary(min_size=1, max_size=400))
def test_a_damaged_database_never_stops_the_import(place, words):
    data = bytearray((SAMPLES / "mcphawk.db").read_bytes())
    data[100 + place : 100 + place + len(words)] = words
    imported("mcphawk", bytes(data))


def changed_database(folder: Path, statements: str) -> Path:
    """The sample of mcphawk after these statements."""
    copy = folder / "x.db"
    copy.write_bytes((SAMPLES / "mcphawk.db").read_bytes())
    with sqlite3.connect(copy) as connection:
        connection.executescript(statements)
    connection.close()
    return copy


def test_rows_of_the_wrong_type_in_a_database_are_counted(tmp_path):
    copy = changed_database(tmp_path, "UPDATE messages SET ts = 'soon' WHERE id = 3")
    done = import_logs(copy, tmp_path / "t")
    assert all_records_accounted_for(done)
    assert {w: p.count for w, p in done.files[0].tally.unused.items()} == {
        "a row with values of the wrong type": 1
    }


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE messages SET ts = 9e999 WHERE id = 3",
        "UPDATE messages SET ts = 1e100 WHERE id = 3",
        """CREATE TABLE m AS SELECT * FROM messages; DROP TABLE messages;
        ALTER TABLE m RENAME TO messages; UPDATE messages SET id = 'three' WHERE id = 3""",
    ],
    ids=["endless", "far away", "words for a number"],
)
def test_a_row_with_an_impossible_number_does_not_affect_other_rows(tmp_path, change):
    whole = import_logs(SAMPLES / "mcphawk.db", tmp_path / "whole")
    done = import_logs(changed_database(tmp_path, change), tmp_path / "t")
    assert all_records_accounted_for(done)
    assert done.files[0].tally.used >= whole.files[0].tally.used - 1
    assert all(0 <= event["ts_ns"] < 2**63 for event in events(tmp_path / "t"))


def test_a_database_with_a_view_in_place_of_a_table_is_not_queried(tmp_path):
    endless = changed_database(
        tmp_path,
        "ALTER TABLE messages RENAME TO m; CREATE VIEW messages AS "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT n.i AS id, session_id, ts, direction, size, body FROM n, m",
    )
    assert not is_database(endless, mcphawk.TABLES)
    done = import_logs(endless, tmp_path / "t", format="mcphawk")
    assert [*done.files[0].tally.unused] == ["not a database of mcphawk: its tables are missing"]
    assert all_records_accounted_for(done)


def _entry(url="http://h/mcp", response=None, **extra):
    ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
    request = {"method": "POST", "url": url, "headers": [], "postData": {"text": ping}}
    answer = {"content": {"text": '{"jsonrpc":"2.0","id":1,"result":{}}'}}
    entry = {"startedDateTime": "2026-03-01T10:00:00Z", "time": 5, "request": request}
    return {"log": {"entries": [entry | {"response": response or answer} | extra]}}


def _span(**attributes):
    told = {"mcp.method.name": {"stringValue": "tools/call"}} | attributes
    pairs = [{"key": key, "value": value} for key, value in told.items()]
    times = {"startTimeUnixNano": "1772359200000000000", "endTimeUnixNano": "1772359201000000000"}
    spans = [{"spanId": "a", "kind": 3, "attributes": pairs, **times}]
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


STREAM = {
    "headers": [{"name": "content-type", "value": "text/event-stream"}],
    "content": {"text": "event: endpoint\ndata: http://[x/y\n\n"},
}
CALL_ENDED = json.loads(CODEX)
TYPED_BLOCK = CODEX.replace('{"content": []}', r'"[{\"type\":{}}]"')
ODD = {
    "a kind that is an object": ("codex", CALL_ENDED | {"payload": {"type": {}}}),
    "a kind that is a list": ("codex", CALL_ENDED | {"payload": {"type": [], "call_id": "1"}}),
    "blocks of a kind that is an object": ("codex", json.loads(TYPED_BLOCK)),
    "a call of millennia": ("codex", json.loads(CODEX.replace('"secs": 1', f'"secs": {10**18}'))),
    "a tool of millennia": ("claude-code", json.loads(CODE[1].replace("1ms", f"{10**20}ms"))),
    "an invalid URL": ("har", _entry("http://[::1/mcp")),
    "an invalid endpoint": ("har", _entry(response=STREAM)),
    "an endless duration": ("har", _entry(time=1e300)),
    "a duration of millennia": ("har", _entry(time=1e20)),
    "an impossible time": ("har", _entry(_eventSourceMessages=[{"time": 1e300, "data": "{}"}])),
    "an error that is a list": ("otlp", _span(**{"error.type": {"arrayValue": {"values": []}}})),
    "an error that is an object": ("otlp", _span(**{"error.type": {"kvlistValue": {}}})),
}
"""Name → the format, and a document or a line of it."""


@pytest.mark.parametrize(("form", "told"), ODD.values(), ids=ODD)
def test_impossible_values_are_left_out_of_an_import(tmp_path, form, told):
    (tmp_path / "a.log").write_text(json.dumps(told) + "\n")
    done = import_logs(tmp_path / "a.log", tmp_path / "t", format=form)
    assert all_records_accounted_for(done)
    assert done.unused_lines == 0
    made = events(tmp_path / "t")
    assert made or done.files[0].tally.context
    assert all(0 <= event["ts_ns"] < 2**63 for event in made)


AROUND = {
    "vscode": "2026-03-01 10:00:00.000 [debug] [editor -> server] {}",
    "claude-desktop": "2026-03-01T10:00:00.000Z [x] [info] Message from client: {} "
    "{{ metadata: undefined }}",
}
"""Format → template around the JSON of its lines."""
ODD_VALUES = {
    "an integer beyond 64 bits": "18446744073709551616",
    "a negative integer beyond 64 bits": "-9223372036854775809",
    "an integer of 5000 digits": "9" * 5000,
    "NaN": "NaN",
    "a number beyond doubles": "1e999",
    "a lone surrogate": '"\\ud800"',
    "deep nesting": "[" * 3000 + "]" * 3000,
    "nesting near the limit": '{"a":' * 100 + "1" + "}" * 100,
    "null": "null",
    "a boolean": "true",
    "an object": "{}",
    "a list": "[]",
    "a fraction": "0.5",
}


def _places(value, path=()):
    if path:
        yield path
    members = dict(enumerate(value)) if isinstance(value, list) else value
    for key, each in members.items() if isinstance(members, dict) else ():
        yield from _places(each, (*path, key))


def _with(value, path, token):
    """Return the JSON text of a value with `token` at one path."""
    if not path:
        return token
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    inner = {k: _with(v, path[1:], token) if k == path[0] else json.dumps(v) for k, v in pairs}
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{v}" for k, v in inner.items()) + "}"
    return "[" + ",".join(inner.values()) + "]"


@pytest.mark.slow
@pytest.mark.parametrize("form", LINES)
def test_an_odd_value_anywhere_in_a_line_does_not_stop_the_import(tmp_path, form):
    path = tmp_path / "a.log"
    for number, line in enumerate(LINES[form]):
        for turn, place in enumerate(_places(json.loads(line))):
            # Each place gets a third of the values: values and places are not special together.
            for name, token in [*ODD_VALUES.items()][turn % 3 :: 3]:
                lines = list(LINES[form])
                lines[number] = _with(json.loads(line), place, token)
                around = AROUND.get(form, "{}")
                path.write_text("".join(f"{around.format(each)}\n" for each in lines))
                done = import_logs(path, tmp_path / "t", format=form, timezone="UTC")
                assert all_records_accounted_for(done), (name, place)


@pytest.mark.parametrize("token", ODD_VALUES.values(), ids=ODD_VALUES)
def test_an_odd_value_in_a_database_message_does_not_stop_the_import(tmp_path, token):
    body = f'{{"jsonrpc":"2.0","id":{token},"method":"ping","params":{token}}}'
    copy = changed_database(tmp_path, f"UPDATE messages SET body = '{body}' WHERE id = 3")
    done = import_logs(copy, tmp_path / "t")
    assert all_records_accounted_for(done)
    whole = import_logs(SAMPLES / "mcphawk.db", tmp_path / "whole").files[0].tally
    assert done.files[0].tally.used + done.unused_lines >= whole.used


def test_a_har_entry_with_an_invalid_status_is_counted_and_the_others_are_imported(tmp_path):
    whole = _entry()["log"]["entries"][0]
    odd = whole | {"response": {"status": 2**64}}
    document = json.dumps({"log": {"entries": [whole, odd, whole]}}, indent=1)
    (tmp_path / "a.har").write_text(document)
    done = import_logs(tmp_path / "a.har", tmp_path / "t", format="har")
    ((why, where),) = done.files[0].tally.unused.items()
    assert "status" in why
    (first, _), *_ = where.runs
    assert document.split("\n")[first - 1].strip() == "{"
    assert where.count == 1
    assert done.files[0].tally.used == 2


def test_json_lines_with_log_and_entries_are_not_a_har(tmp_path):
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "log"}}
    reply = {"jsonrpc": "2.0", "id": 1, "result": {"content": [], "entries": []}}
    (tmp_path / "a.jsonl").write_text(json.dumps(call) + "\n" + json.dumps(reply) + "\n")
    assert detect_format(tmp_path / "a.jsonl") == "jsonrpc"
    other = json.dumps({"version": 1} | _entry())
    for text in (other, json.dumps(json.loads(other), indent=1), "\ufeff" + json.dumps(_entry())):
        (tmp_path / "a.har").write_text(text, encoding="utf-8")
        assert detect_format(tmp_path / "a.har") == "har"


def test_a_session_that_begins_with_a_large_image_is_recognised(tmp_path):
    image = {"type": "user", "message": "A" * (1 << 20), "sessionId": "s", "cwd": "/"}
    line = {"type": "assistant", "sessionId": "s", "cwd": "/"}
    for first in (image, {"type": "summary", "image": "A" * (1 << 20)}):
        (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, [first, line, line])))
        assert detect_format(tmp_path / "a.jsonl") == "claude-code"


OTHER_LINE = '{"level": "info", "text": "forwarded"}'
SENT = '{"level": "debug", "text": "sent", "body": {"jsonrpc": "2.0", "method": "ping"}}'
QUOTED = '10:00:00 INFO proxy: sent {"jsonrpc": "2.0", "id": 1, "method": "ping"}'


@pytest.mark.parametrize(
    ("line", "message", "messages", "found"),
    [
        (OTHER_LINE, PING.strip(), 4, None),
        (OTHER_LINE, PING.strip(), 5, "jsonrpc"),
        (QUOTED, QUOTED, 10, None),
        ('{"start_time":"x","response_code":200,"mcp.method.name":null}', SENT, 4, "access-log"),
        (
            "2026-01-01T00:00:00Z\tinfo\trequest protocol=mcp mcp.method.name=ping",
            SENT,
            4,
            "access-log",
        ),
        ("2026-01-01T00:00:00Z\tinfo\trequest protocol=llm duration=1ms", SENT, 2, None),
        ("2026-02-04 18:00:00.000 [info] Handling ListOfferings action", SENT, 4, "cursor"),
        ("2026-02-04 18:00:00.000 [info] Starting server x", SENT, 4, "vscode"),
    ],
)
def test_a_log_that_mentions_messages_is_not_a_log_of_messages(
    tmp_path, line, message, messages, found
):
    lines = [line] * (10 - messages) + [message] * messages
    (tmp_path / "a.log").write_text("\n".join(lines))
    assert detect_format(tmp_path / "a.log") == found


def test_a_line_that_vs_code_could_not_parse_is_what_the_server_wrote(tmp_path):
    (tmp_path / "a.log").write_text(
        "2026-03-01 10:00:00.000 [info] Starting server notes\n"
        '2026-03-01 10:00:01.000 [warning] Failed to parse message: "Running on stdio é\\n"\n'
        "2026-03-01 10:00:02.000 [warning] Failed to parse message: no text\n"
    )
    import_logs(tmp_path / "a.log", tmp_path / "t", format="vscode", timezone="UTC")
    [raw] = [event for event in events(tmp_path / "t") if event["event"] == "raw"]
    assert (raw["dir"], raw["text"]) == ("s2c", "Running on stdio é")


LONG = 40_000
BEGUN, AGAIN = "2026-03-01T10:00:00Z", "args: [" * LONG
STAMP = "2026-03-01 10:00:00.000 [info] "
ENDLESS = {
    "a failure that fails again": ("claude-code", "Tool 'x" + "' failed after " * LONG),
    "a duration of digits": ("claude-code", f"Tool 'x' completed successfully in {'1' * LONG * 3}"),
    "a server of blanks": ("vscode", f"{STAMP}Starting server{' ' * LONG * 3}x"),
    "arguments that begin again": (
        "claude-desktop",
        "\n".join((f"{BEGUN} [x] [info] Using MCP server command: x with args {{", AGAIN, "}")),
    ),
    "a request of letters": ("access-log", f"{BEGUN}\tinfo\trequest {'a' * LONG * 3}"),
    "a request of quotes": ("access-log", f"{BEGUN}\tinfo\trequest {'a=' + chr(34) * LONG}"),
    "a server of colons": ("cursor", f"{STAMP}{': ' * LONG}Calling tool '"),
}
"""Name → the format, and a text in it."""


@pytest.mark.parametrize(("form", "said"), ENDLESS.values(), ids=ENDLESS)
def test_a_line_made_for_slow_patterns_is_read(tmp_path, form, said):
    about = {"timestamp": "2026-03-01T10:00:00Z", "sessionId": "s", "cwd": "/"}
    line = json.dumps({"debug": said} | about) if form == "claude-code" else said
    (tmp_path / "a.log").write_text(line + "\n")
    done = import_logs(tmp_path / "a.log", tmp_path / "t", format=form)
    assert all_records_accounted_for(done)
    assert done.unused_lines == 0


def test_a_file_name_that_is_not_utf8_does_not_stop_the_import(tmp_path):
    odd = tmp_path / os.fsdecode(b"\xff.jsonl")
    try:
        odd.write_text(PING)
    except OSError:
        pytest.skip("this file system has no such names")
    (tmp_path / "a.jsonl").write_text(PING)
    done = import_logs(tmp_path, tmp_path / "t")
    assert [outcome.file.name for outcome in done.files] == ["a.jsonl"]
    assert ["UTF-8" in why for why in done.passed_over.values()] == [True]
    assert import_logs(odd, tmp_path / "t").recordings == 1


def test_the_oldest_calls_without_an_end_are_dropped_first(tmp_path, monkeypatch):
    monkeypatch.setattr(call_records, "MAX_PENDING_CALLS", 3)
    begins = [CODE[0].replace("tool: x", f"tool: x{number}") for number in range(5)]
    ends = [CODE[1].replace("'x'", f"'x{number}'") for number in range(2, 5)]
    (tmp_path / "a.jsonl").write_text("\n".join([*begins, *ends]))
    done = import_logs(tmp_path / "a.jsonl", tmp_path / "t", format="claude-code")
    tally = done.files[0].tally
    assert tally.notes[call_records.FORGOTTEN] == 2
    request = [e["name"] for e in events(tmp_path / "t") if e["event"] == "raw" and "method" in e]
    assert sorted(request) == ["x2", "x3", "x4"]


def test_pending_requests_take_bounded_memory(monkeypatch):
    monkeypatch.setattr(call_records, "PENDING_BYTES", 1000)
    tally, connection = Tally(), Connection("s")
    waiting = call_records.PendingCalls(tally)
    for number in range(20):
        request = call_records.request(
            connection, f"{number}", 1, 1, tool="t", arguments=b"1" * 100
        )
        waiting.add(f"{number % 15}", request)
    left = list(waiting.unanswered())
    assert sum(len(item.data) for item in left) <= 1000
    assert 0 < len(left) < 10
    assert tally.notes[call_records.FORGOTTEN] + len(left) == 20
    assert waiting.pop("4") is left[-1]
    assert waiting.pop("4") is None


def test_the_intact_part_of_a_truncated_gzip_file_is_imported(tmp_path):
    whole = gzip.compress(WHOLE["claude-desktop"] * 40)
    (tmp_path / "mcp-server-time.log.gz").write_bytes(whole[: len(whole) // 2])
    done = import_logs(tmp_path / "mcp-server-time.log.gz", tmp_path / "t")
    assert done.recordings > 3
    assert done.unused_lines >= 1
    assert all_records_accounted_for(done)


# --- the parts --------------------------------------------------------------------------------

_OBJECTS = st.lists(st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=4), max_size=6)


@pytest.mark.slow
@given(_OBJECTS, JSON_VALUES, st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
def test_elements_of_the_array_do_not_depend_on_chunks(objects, other, size, indent, ascii_):
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


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 50)), max_size=60))
def test_items_are_sorted_by_time_and_those_without_a_time_follow_their_predecessor(times):
    items = [Item("message", n, Connection("s"), at, data=b"%d" % n) for n, at in enumerate(times)]
    known = [*accumulate(times, lambda last, at: last if at is None else at, initial=0)][1:]
    wanted = sorted(items, key=lambda item: known[item.line])
    assert list(sorted_by_time(items)) == wanted


SECONDS = 1772358293
TIMES = {
    "2026-03-01T09:44:53.641Z": 1772358293641000000,
    "2026-03-01T09:44:53.123456789Z": 1772358293123456789,
    "2026-03-01 10:44:53,5+01:00": 1772358293500000000,
    "2026-03-01 09:44:53": 1772358293000000000,
    "1772358293641": 1772358293641000000,
    **dict.fromkeys((SECONDS * 10**n for n in (0, 3, 6, 9)), SECONDS * 10**9),  # unit by size
    SECONDS + 0.25: SECONDS * 10**9 + 250_000_000,
}


@pytest.mark.parametrize(("text", "ns"), TIMES.items(), ids=TIMES)
def test_time_formats_of_common_programs_are_parsed(text, ns):
    assert parse_timestamp(text, parse_timezone("UTC")) == ns


def test_a_time_without_a_zone_has_the_zone_that_is_given():
    assert parse_timestamp("2026-03-01 09:44:53", parse_timezone("+02:00")) == 1772351093000000000


@given(st.one_of(JSON_VALUES, st.floats(), st.text(max_size=40)))
def test_a_value_that_is_not_a_time_gives_none(value):
    found = parse_timestamp(value, parse_timezone("UTC"))
    assert found is None or 0 < found < 2**63


@pytest.mark.parametrize(
    ("text", "ns"),
    [("505ms", 505_000_000), ("0s", 0), ("1m 5s", 65 * 10**9), ("2.5s", 25 * 10**8), ("5", None)],
)
def test_durations_are_parsed(text, ns):
    assert parse_duration(text) == ns
