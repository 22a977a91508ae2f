"""`redact` hides in recordings that exist what a recorder would have hidden, and nothing else."""

import base64
import gzip
import json
import stat

import pytest
import zstandard

from mcptally.errors import UnreadableError, UsageError
from mcptally.record.redact import hashed
from mcptally.redact import redact
from tests.commands import run

KEY = "ghp_" + "a1B2" * 9


def event(seq, kind, **fields):
    return {"v": 1, "event": kind, "recording": "r1", "seq": seq, "ts_ns": 9 + seq, **fields}


EVENTS = [
    event(0, "open", transport="stdio", server="s", command=["x", "--token", "abc"],
          redaction="none", segment=0),
    event(1, "message", dir="c2s", scope=None, bytes=9, msg={"password": "hunter2", "n": [1, 2]}),
    event(2, "message", dir="s2c", scope=None, bytes=9, msg={"result": "nothing here"}),
    event(3, "raw", dir="s2c", bytes=9, why="too_large", text=f'{{"t":"{KEY}', truncated=True,
          sha256="00"),
    event(4, "raw", dir="s2c", bytes=9, why="not_utf8",
          b64=base64.b64encode(b"\xff " + KEY.encode()).decode()),
    event(5, "stderr", text=f"token is {KEY}\n"),
    event(6, "http", dir="c2s", scope="1", phase="request", method="POST",
          path="/m?session_id=abcdef012345", headers={"mcp-session-id": "s1", "x-odd": "v",
                                                       "accept": "text/html"}),
    event(7, "message", dir="c2s", msg={"password": "x1", "a": "[redacted:jwt]"}, redacted=1),
    event(8, "close", reason="eof", counts={"open": 1}),
]  # fmt: skip


def text(events):
    return "".join(json.dumps(e) + "\n" for e in events).encode()


PACK = {".jsonl": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}
UNPACK = {
    ".jsonl": bytes,
    ".gz": gzip.decompress,
    ".zst": lambda data: zstandard.ZstdDecompressor().stream_reader(data).read(),
}


@pytest.mark.parametrize("suffix", PACK)
def test_every_field_that_holds_traffic_is_redacted_and_no_other(tmp_path, suffix):
    source = tmp_path / "in" / "deep" / ("a.jsonl" + suffix.removeprefix(".jsonl"))
    source.parent.mkdir(parents=True)
    source.write_bytes(PACK[suffix](text(EVENTS)))
    before = source.read_bytes()

    done = redact([tmp_path / "in"], tmp_path / "out")

    assert source.read_bytes() == before
    copy = tmp_path / "out" / "deep" / source.name
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    after = [json.loads(line) for line in UNPACK[suffix](copy.read_bytes()).splitlines()]
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


def test_what_needs_no_redaction_is_copied_to_the_byte(tmp_path):
    line = (
        b'{ "v":1,"event":"message", "recording":"r","seq":1,"ts_ns":2,"new":[1.50],"msg":1E+2}\r\n'
    )
    (tmp_path / "a.jsonl").write_bytes(line * 3)
    redact([tmp_path / "a.jsonl"], tmp_path / "out")
    assert (tmp_path / "out" / "a.jsonl").read_bytes() == line * 3


def test_odd_number_forms_stay_beside_a_secret(tmp_path):
    line = b'{"v":1,"event":"message","msg":{"n":1.50,"n":1E+2,"password":"hunter2"}}\n'
    (tmp_path / "a.jsonl").write_bytes(line)
    redact([tmp_path / "a.jsonl"], tmp_path / "out")
    assert (tmp_path / "out" / "a.jsonl").read_bytes() == line.replace(
        b'hunter2"}}', b'[redacted:password]"},"redacted":1}'
    )


def test_a_line_that_is_no_event_is_carried_over_redacted(tmp_path):
    torn = text(EVENTS[:1]) + f'{{"v":1,"event":"message","msg":{{"a":"{KEY}'.encode()
    (tmp_path / "a.jsonl").write_bytes(b"DB_PASSWORD=hunter2\n\n" + torn)
    done = redact([tmp_path / "a.jsonl"], tmp_path / "out")
    copy = (tmp_path / "out" / "a.jsonl").read_bytes()
    assert copy.startswith(b"DB_PASSWORD=[redacted:password]\n\n")
    assert copy.endswith(b'"msg":{"a":"[redacted:github-token]')
    assert done.carried == 2


def test_a_label_that_was_made_of_an_argument_loses_its_secret(tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_bytes(text([{**EVENTS[0], "server": f"TOKEN={KEY}"}]))
    redact([source], tmp_path / "out")
    assert KEY not in (tmp_path / "out" / "a.jsonl").read_text()


def test_what_cannot_be_read_is_named_by_its_place(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"PK\x03\x04")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(text(EVENTS))[:-9])
    done = redact([tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"], tmp_path / "out")
    first, second = done.dropped
    assert first.startswith(f"{tmp_path / 'a.jsonl'}: is a zip file")
    assert second.startswith(f"{tmp_path / 'b.jsonl.gz'}:")
    assert "None" not in second


def test_a_second_run_changes_nothing_more(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(text(EVENTS))
    redact([tmp_path / "a.jsonl"], tmp_path / "1")
    done = redact([tmp_path / "1"], tmp_path / "2")
    assert (tmp_path / "2" / "a.jsonl").read_bytes() == (tmp_path / "1" / "a.jsonl").read_bytes()
    assert done.redacted == 0


def test_policies_add_up_in_the_open_event(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(text(EVENTS[:1]))
    redact([tmp_path / "a.jsonl"], tmp_path / "1")
    redact([tmp_path / "1"], tmp_path / "2", rules="none,+emails")
    first = json.loads((tmp_path / "2" / "a.jsonl").read_bytes())
    assert first["redaction"] == "default; none,+emails"


@pytest.mark.parametrize("out", ["in", "in/sub", ".", "in/../in"])
def test_an_output_that_overlaps_the_source_is_refused(tmp_path, out):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(text(EVENTS))
    with pytest.raises(UsageError, match="overlaps the source"):
        redact([tmp_path / "in"], tmp_path / out)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.jsonl", "in"]


def test_nothing_is_overwritten(tmp_path):
    for folder in ("1", "2"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_bytes(text(EVENTS))
    with pytest.raises(UsageError, match="would both become"):
        redact([tmp_path / "1" / "a.jsonl", tmp_path / "2" / "a.jsonl"], tmp_path / "out")
    redact([tmp_path / "1", tmp_path / "2"], tmp_path / "out")
    with pytest.raises(UsageError, match="is there already"):
        redact([tmp_path / "1", tmp_path / "2"], tmp_path / "out")


def test_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(UnreadableError):
        redact([tmp_path / "none"], tmp_path / "out")


def test_the_command_redacts_and_says_how_much(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_bytes(text(EVENTS))
    done = run("redact", "a.jsonl", "-o", "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"1 files, {len(EVENTS)} events, 9 strings replaced\n"
    again = run("redact", "a.jsonl", "-o", "out", "--policy", "x")
    assert again.returncode == 2
    assert "no redaction policy is called 'x'" in again.stderr
