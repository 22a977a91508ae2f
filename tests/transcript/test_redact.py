"""`redact` replaces the same secrets in existing recordings as the recorder does."""

import base64
import json
import stat
from pathlib import Path

import pytest

from mcptally.errors import UsageError
from mcptally.redaction.policy import hashed
from mcptally.transcript.redact import UNFINISHED, redact
from tests.commands import run
from tests.transcripts import event, lines_of, opened, write

KEY = "ghp_" + "a1B2" * 9


EVENTS = [
    event("open", 0, transport="stdio", server="s", command=["x", "--token", "abc"],
          redaction="none", segment=0),
    event("message", 1, dir="c2s", scope=None, bytes=9, msg={"password": "hunter2", "n": [1, 2]}),
    event("message", 2, dir="s2c", scope=None, bytes=9, msg={"result": "nothing here"}),
    event("raw", 3, dir="s2c", bytes=9, why="too_large", text=f'{{"t":"{KEY}', truncated=True,
          sha256="00"),
    event("raw", 4, dir="s2c", bytes=9, why="not_utf8",
          b64=base64.b64encode(b"\xff " + KEY.encode()).decode()),
    event("stderr", 5, text=f"token is {KEY}\n"),
    event("http", 6, dir="c2s", scope="1", phase="request", method="POST",
          path="/m?session_id=abcdef012345", headers={"mcp-session-id": "s1", "x-odd": "v",
                                                       "accept": "text/html"}),
    event("message", 7, dir="c2s", msg={"password": "x1", "a": "[redacted:jwt]"}, redacted=1),
    event("close", 8, reason="eof", counts={"open": 1}),
]  # fmt: skip


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_only_fields_with_traffic_are_redacted(tmp_path, name):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    source = write(tmp_path / "in" / "deep" / name, EVENTS)
    before = source.read_bytes()

    done = redact([tmp_path / "in"], tmp_path / "out")

    assert source.read_bytes() == before
    copy = tmp_path / "out" / "deep" / source.name
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    after = [json.loads(line) for line in lines_of(copy)]
    key = "[redacted:github-token]"
    changes = {
        0: {"command": ["x", "--token", "[redacted:token]"], "redaction": "default"},
        1: {"msg": {"password": "[redacted:password]", "n": [1, 2]}, "redacted": 1},
        3: {"text": f'{{"t":"{key}', "redacted": 1, "sha256": None},
        4: {"b64": base64.b64encode(b"\xff " + key.encode()).decode(), "redacted": 1},
        5: {"text": f"token is {key}\n", "redacted": 1},
        6: {
            "path": f"/m?session_id={hashed('session-id', 'abcdef012345')}",
            "headers": {
                "mcp-session-id": hashed("session-id", "s1"),
                "x-odd": "[redacted:header]",
                "accept": "text/html",
            },
        },
        7: {"msg": {"password": "[redacted:password]", "a": "[redacted:jwt]"}, "redacted": 2},
    }
    for old, new in zip(EVENTS, after, strict=True):
        expected = {**old, **changes.get(old["seq"], {})}
        assert new == {k: v for k, v in expected.items() if v is not None or k == "scope"}
    assert (done.files, done.events, done.redacted) == (1, len(EVENTS), 9)


def redacted(folder, *lines, rules="default"):
    """The lines of the redacted copy of a transcript, and the result of `redact`."""
    (folder / "a.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    done = redact([folder / "a.jsonl"], folder / "out", rules=rules)
    return (folder / "out" / "a.jsonl").read_bytes().splitlines(), done


def test_lines_are_copied_byte_by_byte_but_for_secrets(tmp_path):
    plain = (
        b'{ "v":1,"event":"message", "recording":"r","seq":1,"ts_ns":2,"new":[1.50],"msg":1E+2}\r'
    )
    secret = b'{"v":1,"event":"message","msg":{"n":1.50,"n":1E+2,"password":"hunter2"}}'
    hidden = secret.replace(b'hunter2"}}', b'[redacted:password]"},"redacted":1}')
    redacted(tmp_path, plain, secret, plain)
    assert (tmp_path / "out" / "a.jsonl").read_bytes() == b"\n".join([plain, hidden, plain, b""])


def line(seq, kind, **fields):
    return json.dumps(event(kind, seq, **fields)).encode()


def spoilt(seq, kind, **fields):
    """An event with a byte that is not UTF-8 before the first `ODD`."""
    return line(seq, kind, **fields).replace(b"ODD", b"\xff")


ODD = f"ODD{KEY}"
NOT_UTF8 = {
    "text": spoilt(1, "stderr", text=ODD),
    "headers": spoilt(1, "http", dir="c2s", phase="request", headers={"x": "ODD", "y": "zebra"}),
    "msg": spoilt(1, "message", dir="c2s", msg={"a": ODD}),
    "a name": spoilt(1, "stderr", ODD=KEY),
}


@pytest.mark.parametrize("odd", NOT_UTF8.values(), ids=NOT_UTF8)
def test_a_line_that_is_not_utf8_is_withheld_and_the_others_are_redacted(tmp_path, odd):
    copy, done = redacted(tmp_path, line(0, "stderr", text=KEY), odd, odd, line(2, "close"))
    stand_in = {"v": 1, "withheld": "the line is not UTF-8", "bytes": len(odd)}
    assert [json.loads(copy[1]), json.loads(copy[2])] == [stand_in, stand_in]
    assert json.loads(copy[0])["text"] == "[redacted:github-token]"
    assert copy[3] == line(2, "close")
    assert done.withheld == [f"{tmp_path / 'a.jsonl'}:2: the line is not UTF-8 (and 1 more)"]
    assert (done.events, done.carried) == (2, 0)


DEEP = b"[" * 5000 + b'"zebra"' + b"]" * 5000
UNQUOTED = line(1, "http", headers={"x-odd": "zebra"}).replace(b'"x-odd', b"x-odd")
NESTED = b'{"v":1,"event":"stderr","x":' + DEEP + b"}"
NO_OBJECT = {
    "a line of text": (b"DB_PASSWORD=hunter2", "not JSON"),
    "an event with a quote missing": (UNQUOTED, "not JSON"),
    "a lone surrogate": (rb'{"v":1,"event":"stderr","text":"\ud800zebra"}', "not JSON"),
    "nesting without end": (NESTED, "JSON nested deeper than 512 levels"),
    "an array": (b'["zebra"]', "JSON, but not an object"),
    "a torn line": (f'{{"v":1,"event":"message","msg":{{"a":"{KEY}'.encode(), "not JSON"),
}


@pytest.mark.parametrize("rules", ["default", "none"])
@pytest.mark.parametrize(("odd", "why"), NO_OBJECT.values(), ids=NO_OBJECT)
def test_no_part_of_a_line_that_is_not_a_json_object_is_copied(tmp_path, odd, why, rules):
    copy, done = redacted(tmp_path, odd, rules=rules)
    stand_in = {"v": 1, "withheld": why, "bytes": len(odd)}
    assert [json.loads(each) for each in copy] == [stand_in]
    assert done.withheld == [f"{tmp_path / 'a.jsonl'}:1: {why}"]


def test_a_torn_last_line_gets_no_newline(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"v":1\r\n\n{"v":1,"eve')
    redact([tmp_path / "a.jsonl"], tmp_path / "out")
    first, blank, last = (tmp_path / "out" / "a.jsonl").read_bytes().split(b"\n")
    assert (first[-2:], blank, last[-1:]) == (b"}\r", b"", b"}")


def test_a_json_object_that_is_not_an_event_is_redacted_as_one(tmp_path):
    odd = line(1, "tomorrow", headers={"x-odd": "zebra"}, command=["--token", "abc"], text=KEY)
    [copy], done = redacted(tmp_path, odd)
    after = json.loads(copy)
    assert after["headers"] == {"x-odd": "[redacted:header]"}
    assert after["command"] == ["--token", "[redacted:token]"]
    assert after["text"] == "[redacted:github-token]"
    assert (done.events, done.carried, done.withheld) == (0, 1, [])


def test_a_line_that_an_earlier_run_withheld_is_copied_and_not_reported_again(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\xff\n")
    redact([tmp_path / "a.jsonl"], tmp_path / "1")
    done = redact([tmp_path / "1"], tmp_path / "2")
    assert (tmp_path / "2" / "a.jsonl").read_bytes() == (tmp_path / "1" / "a.jsonl").read_bytes()
    assert (done.events, done.carried, done.withheld) == (0, 0, [])


def test_a_line_that_says_that_it_was_withheld_is_searched(tmp_path):
    [copy], _ = redacted(tmp_path, json.dumps({"v": 1, "withheld": KEY}).encode())
    assert KEY.encode() not in copy


def twice(name, first, second, *, kind="stderr"):
    """An event with a repeated member."""
    start = json.dumps({**event(kind, 1), "dir": "c2s"}).encode()[:-1]
    return b'%b,"%b":%b, "%b":%b}' % (start, name, first, name, second)


SECRET = f'"{KEY}"'.encode()
TWICE = {
    "the first text": twice(b"text", SECRET, b'"x"'),
    "the second text": twice(b"text", b'"x"', SECRET),
    "the first msg": twice(b"msg", b'{"a":%b}' % SECRET, b"{}", kind="message"),
    "inside msg": twice(b"msg", b'{"a":%b,"a":1}' % SECRET, b"{}", kind="message"),
    "a header": twice(b"headers", b'{"x-odd":%b,"x-odd":"[redacted:header]"}' % SECRET, b"{}"),
    "the first recording": twice(b"recording", SECRET, b'"r1"'),
    "the kind": twice(b"event", SECRET, b'"close"'),
}


@pytest.mark.parametrize("odd", TWICE.values(), ids=TWICE)
def test_repeated_members_are_all_redacted_and_kept(tmp_path, odd):
    def names(data):
        return [name for name, _ in json.loads(data, object_pairs_hook=list) if name != "redacted"]

    [copy], _ = redacted(tmp_path, odd)
    assert KEY.encode() not in copy
    assert names(copy) == names(odd)


@pytest.mark.parametrize(
    "field",
    [
        *("v", "transport", "recorder", "phase", "status", "sse_event", "reflowed", "truncated"),
        *("lost", "exit_code", "signal", "counts", "closed_by", "segment", "dir", "bytes"),
        *("reason", "why", "detail", "redaction"),
    ],
)
def test_fields_that_the_recorder_fills_are_searched_too(tmp_path, field):
    odd = line(1, "close", **{field: {KEY: [KEY]} if field == "counts" else KEY})
    [copy], done = redacted(tmp_path, odd)
    assert KEY.encode() not in copy
    assert b"[redacted:github-token]" in copy
    assert done.redacted > 0


def test_the_policies_of_an_open_event_are_searched(tmp_path):
    [copy], _ = redacted(tmp_path, line(0, "open", redaction=f"default; {KEY}"))
    assert json.loads(copy)["redaction"] == "default; [redacted:github-token]"


def test_a_member_with_a_secret_name_is_redacted(tmp_path):
    [copy], _ = redacted(tmp_path, line(1, "stderr", api_key="hunter2", **{KEY: 1}))
    after = json.loads(copy)
    assert after["api_key"] == "[redacted:api-key]"
    assert after["[redacted:github-token]"] == 1


UNREADABLE = "[redacted:unreadable]"
NO_B64 = {"b64": base64.b64encode(UNREADABLE.encode()).decode()}
LONG_B64 = base64.encodebytes(KEY.encode() * 3).decode().replace("\n", "\\n")
HIDDEN_ONCE = {"text": "[redacted:github-token]", "redacted": 1}
WRONG_TYPE = {
    "b64 that is not ASCII": ('"b64":"\u00e9"', NO_B64),
    "b64 in two lines": (f'"b64":"{LONG_B64}"', NO_B64),
    "b64 that is a list": ('"b64":["zebra"]', NO_B64),
    "headers in pairs": ('"headers":[["x-odd","zebra"]]', {"headers": UNREADABLE}),
    "a header in a list": ('"headers":{"x":["zebra"]}', {"headers": {"x": "[redacted:header]"}}),
    "a command with a number": ('"command":["x",5,"--token","zebra"]', {"command": UNREADABLE}),
    "a count beyond 64 bits": (f'"text":"{KEY}","redacted":18446744073709551615', HIDDEN_ONCE),
    "nothing": ('"b64":null,"headers":null,"command":null', {"b64": None, "headers": None}),
}


@pytest.mark.parametrize(("fields", "expected"), WRONG_TYPE.values(), ids=WRONG_TYPE)
def test_a_value_of_the_wrong_type_is_replaced_as_a_whole(tmp_path, fields, expected):
    odd = f'{{"v":1,"event":"raw","recording":"r","seq":1,"ts_ns":2,{fields}}}'.encode()
    [copy], done = redacted(tmp_path, odd)
    after = json.loads(copy)
    assert {key: after[key] for key in expected} == expected
    assert done.withheld == []


def test_ids_with_secrets_stay_equal_or_different_in_all_files(tmp_path):
    other = "ghp_" + "c3D4" * 9
    (tmp_path / "in").mkdir()
    escaped = line(1, "stderr", text="x", scope=other).replace(b"r1", b"\\u0067" + KEY[1:].encode())
    files = {
        "a.jsonl": [line(0, "open", segment=0).replace(b"r1", KEY.encode()), escaped],
        "b.jsonl": [line(0, "open", segment=1).replace(b"r1", KEY.encode())],
        "c.jsonl": [line(0, "open", segment=0, scope=other).replace(b"r1", other.encode())],
    }
    for name, lines in files.items():
        (tmp_path / "in" / name).write_bytes(b"".join(each + b"\n" for each in lines))
    ids, scopes = [], []
    for out in ("1", "2"):
        redact([tmp_path / "in"], tmp_path / out)
        copies = sorted((tmp_path / out).iterdir())
        events = [json.loads(each) for copy in copies for each in copy.read_bytes().splitlines()]
        ids.append([each["recording"] for each in events])
        scopes.append([each.get("scope") for each in events])
    for first, second, third, fourth in ids:
        assert first == second == third != fourth
    assert ids[0][0] != ids[1][0], "its hash can be guessed"
    assert scopes[0][1] == scopes[0][3] != ids[0][0]
    assert all(each.startswith("[hashed:id:") for run in ids for each in run)
    done = redact([tmp_path / "1"], tmp_path / "3")
    assert done.redacted == 0
    assert [p.read_bytes() for p in sorted((tmp_path / "3").iterdir())] == [
        p.read_bytes() for p in sorted((tmp_path / "1").iterdir())
    ]


@pytest.mark.slow
def test_a_field_that_cannot_be_searched_leaves_other_fields_unchanged(tmp_path):
    [copy], _ = redacted(tmp_path, line(1, "stderr", text="fine", x=["api_key "] * 100_000))
    after = json.loads(copy)
    assert (after["text"], after["recording"], after["seq"]) == ("fine", "r1", 1)
    assert "[redacted:un" in json.dumps(after)


def test_unreadable_files_have_a_message_with_their_place(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"PK\x03\x04")
    cut = write(tmp_path / "b.jsonl.gz", EVENTS)
    cut.write_bytes(cut.read_bytes()[:-9])
    done = redact([tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"], tmp_path / "out")
    first, second = done.dropped
    assert first.startswith(f"{tmp_path / 'a.jsonl'}: is a zip file")
    assert second.startswith(f"{tmp_path / 'b.jsonl.gz'}:")
    assert "None" not in second


def test_the_open_event_lists_all_policies_applied(tmp_path):
    write(tmp_path / "a.jsonl", EVENTS[:1])
    redact([tmp_path / "a.jsonl"], tmp_path / "1")
    redact([tmp_path / "1"], tmp_path / "2", rules="none,+emails")
    first = json.loads((tmp_path / "2" / "a.jsonl").read_bytes())
    assert first["redaction"] == "default; none,+emails"


def test_nothing_is_overwritten(tmp_path):
    for folder in ("1", "2"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "a.jsonl", EVENTS)
    with pytest.raises(UsageError, match="would both become"):
        redact([tmp_path / "1" / "a.jsonl", tmp_path / "2" / "a.jsonl"], tmp_path / "out")
    redact([tmp_path / "1", tmp_path / "2"], tmp_path / "out")
    with pytest.raises(UsageError, match="exists already"):
        redact([tmp_path / "1", tmp_path / "2"], tmp_path / "out")


def test_the_command_redacts_and_prints_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.jsonl", EVENTS)
    done = run("redact", "a.jsonl", "-o", "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"1 file, {len(EVENTS)} events, 9 strings replaced\n"
    again = run("redact", "a.jsonl", "-o", "out", "--policy", "x")
    assert again.returncode == 2
    assert "no redaction policy is called 'x'" in again.stderr


def test_the_command_names_withheld_lines_and_exits_1(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.jsonl", [*EVENTS, NOT_UTF8["text"] + b"\n"])
    done = run("redact", "a.jsonl", "-o", "out")
    assert done.returncode == 1
    assert done.stderr == "mcptally: text withheld: a.jsonl:10: the line is not UTF-8\n"
    assert done.stdout == f"1 file, {len(EVENTS)} events, 9 strings replaced\n"


def test_a_run_that_was_killed_can_be_run_again(tmp_path: Path):
    (tmp_path / "in").mkdir()
    source = write(tmp_path / "in" / "a.jsonl", [opened()])
    write(tmp_path / "in" / "b.jsonl", [opened("r2")])
    out = tmp_path / "out"
    out.mkdir()
    (out / UNFINISHED).touch()
    (out / "a.jsonl").write_bytes(b"copied before the kill")
    (out / "b.jsonl.part").write_bytes(b"half a fi")
    assert redact(source.parent, out).files == 2
    assert sorted(path.name for path in out.iterdir()) == ["a.jsonl", "b.jsonl"]
    assert b"copied before the kill" not in (out / "a.jsonl").read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        redact(source.parent, out)
