"""Sessions written by real agents, with a model that asked each agent for the same calls.

The expected rows come from our recordings of the servers and from counts in the files. A call that
failed with the connection has no reply in the recording, but an error in the sessions.
"""

import sqlite3

import polars as pl
import pytest

from mcptally.importers import import_logs
from tests.importers.imported_logs import SAMPLES, Logs, all_records_accounted_for, events

pytestmark = pytest.mark.slow

LOGS = Logs()
ORDERS = [
    ("price", '{"item":"tea","count":3}', "ok"),
    ("order", '{"item":"tea","count":30}', "tool_error"),
    ("order", '{"item":"tea"}', "tool_error"),
    ("stock", '{"item":"boom"}', "tool_error"),
    ("stock", '{"item":"hidden"}', "hidden_error"),
    ("price", '{"item":"tea","count":1}', "ok"),
    ("price", '{"item":"tea","count":2}', "ok"),
]
SHAKY = [
    ("slow", '{"seconds":8}', "timeout"),
    ("crash", '{"how":3}', "protocol_error"),
    ("slow", '{"seconds":0}', "protocol_error"),
]
SESSIONS = {
    # Claude Code starts the server again, so the last call works.
    "claude-code.jsonl.gz": [*ORDERS, *SHAKY[:2], ("slow", '{"seconds":0}', "ok")],
    "codex.jsonl.gz": [*ORDERS, *SHAKY],
    "codex-exec.jsonl.gz": [*ORDERS, *SHAKY],
    # Gemini CLI refuses the call without `count` itself.
    "gemini-cli.jsonl.gz": [row for row in ORDERS if row[1] != '{"item":"tea"}'] + SHAKY,
    # opencode does not offer the tools of a server that has ended.
    "opencode.json.gz": [*ORDERS, *SHAKY[:2]],
}
NUMBERS = {sample: LOGS.add(sample, SAMPLES / sample) for sample in SESSIONS}


@pytest.mark.parametrize("sample", SESSIONS)
def test_a_session_gives_the_calls_of_mcp_tools_as_they_were_recorded(logs, sample):
    log = logs[NUMBERS[sample]]
    assert all_records_accounted_for(log.done)
    assert not log.done.unused_lines
    found = log.calls.filter(pl.col("server").is_in(["orders", "shaky"]))
    assert sorted(found.select("tool", "arguments", "outcome").rows()) == sorted(SESSIONS[sample])
    error = found.filter(pl.col("arguments") == '{"item":"tea","count":30}').row(0, named=True)
    assert error["error_text"] == "Error executing tool order: Quantity must be at most 10"
    hidden = found.filter(pl.col("arguments") == '{"item":"hidden"}').row(0, named=True)
    assert hidden["error_text"] == "Error: upstream returned 502 Bad Gateway"


@pytest.mark.parametrize("sample", ["opencode-run.jsonl.gz", "opencode.db"])
def test_other_forms_of_a_session_of_opencode_have_the_calls_of_the_export(tmp_path, sample):
    import_logs(SAMPLES / sample, tmp_path / "other")
    import_logs(SAMPLES / "opencode.json.gz", tmp_path / "export")
    of_other, of_export = (
        [event.get("msg") for event in events(tmp_path / name)] for name in ("other", "export")
    )
    assert of_other == of_export
    assert sum(msg is not None for msg in of_other) == 18


def test_parts_of_opencode_s_database_that_are_not_objects_are_counted(tmp_path):
    copy = tmp_path / "opencode.db"
    copy.write_bytes((SAMPLES / "opencode.db").read_bytes())
    odd = ["[]", b"\xff", "{"]
    with sqlite3.connect(copy) as connection:
        ids = [row[0] for row in connection.execute("SELECT id FROM part ORDER BY id LIMIT 3")]
        for id_, data in zip(ids, odd, strict=True):
            connection.execute("UPDATE part SET data = ? WHERE id = ?", [data, id_])
        connection.execute("UPDATE part SET session_id = x'ff'")
    connection.close()
    done = import_logs(copy, tmp_path / "t")
    assert all_records_accounted_for(done)
    assert {why: runs.count for why, runs in done.files[0].tally.unused.items()} == {
        "a part that is not a JSON object": 3
    }
