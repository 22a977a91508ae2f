"""Sessions that the real agents wrote, with a model that asked each for the same calls.

The expected rows are those of our recordings of the servers and of a count in the files. A call
that failed with the connection has no reply in the recording, and an error in the sessions.
"""

import gzip

import polars as pl
import pytest

from mcptally.importers import import_logs
from tests.importers.imported_logs import SAMPLES, all_records_accounted_for, calls_of, events

pytestmark = pytest.mark.slow

FILES = {
    "claude-code": "claude-code.jsonl.gz",
    "codex": "codex.jsonl.gz",
    "codex exec": "codex-exec.jsonl.gz",
    "gemini-cli": "gemini-cli.jsonl.gz",
    "opencode": "opencode.json.gz",
}
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
MCP = {
    # Claude Code starts the server again, so the last call works.
    "claude-code": [*ORDERS, *SHAKY[:2], ("slow", '{"seconds":0}', "ok")],
    "codex": [*ORDERS, *SHAKY],
    "codex exec": [*ORDERS, *SHAKY],
    # Gemini CLI refuses the call without `count` itself.
    "gemini-cli": [row for row in ORDERS if row[1] != '{"item":"tea"}'] + SHAKY,
    # opencode does not offer the tools of a server that has ended.
    "opencode": [*ORDERS, *SHAKY[:2]],
}
BUILT_IN = {
    "claude-code": {
        ("Bash", "ok"): 2,
        ("Bash", "tool_error"): 3,
        ("WaitForMcpServers", "ok"): 1,
        ("Read", "ok"): 1,
        ("Read", "tool_error"): 1,
        ("nosuch", "tool_error"): 1,
    },
    # The command that takes 30 s is still running when its output is read.
    "codex": {
        ("exec_command", "ok"): 5,
        ("exec_command", "tool_error"): 3,
        ("nosuch", "tool_error"): 1,
    },
    "codex exec": {
        ("command_execution", "ok"): 4,
        ("command_execution", "tool_error"): 3,
        ("command_execution", "no_response"): 1,
    },
    "gemini-cli": {
        ("run_shell_command", "ok"): 4,
        ("run_shell_command", "tool_error"): 2,
        ("read_file", "ok"): 1,
        ("read_file", "tool_error"): 1,
        ("nosuch", "tool_error"): 1,
    },
    "opencode": {
        ("bash", "ok"): 3,
        ("bash", "tool_error"): 3,
        ("slow", "tool_error"): 1,
        ("read", "ok"): 1,
        ("read", "tool_error"): 1,
        ("nosuch", "tool_error"): 1,
    },
}


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The calls of each session, those of built-in tools included, and how the imports went."""
    folder = tmp_path_factory.mktemp("sessions")
    done = {
        agent: [
            import_logs(SAMPLES / file, folder / "in" / agent / str(kind), built_in=kind)
            for kind in (False, True)
        ]
        for agent, file in FILES.items()
    }
    calls = calls_of(folder / "in", folder / "store")
    return done, {
        agent: calls.filter(pl.col("file").str.contains(f"in/{agent}/", literal=True))
        for agent in FILES
    }


@pytest.mark.parametrize("agent", FILES)
def test_a_session_gives_the_calls_of_mcp_tools_as_they_were_recorded(imported, agent):
    done, calls = imported
    assert all(all_records_accounted_for(one) and not one.lost for one in done[agent])
    found = calls[agent].filter(pl.col("server").is_in(["orders", "shaky"]))
    assert sorted(found.select("tool", "arguments", "outcome").rows()) == sorted(MCP[agent])
    error = found.filter(pl.col("arguments") == '{"item":"tea","count":30}').row(0, named=True)
    assert error["error_text"] == "Error executing tool order: Quantity must be at most 10"
    hidden = found.filter(pl.col("arguments") == '{"item":"hidden"}').row(0, named=True)
    assert hidden["error_text"] == "Error: upstream returned 502 Bad Gateway"


@pytest.mark.parametrize("agent", FILES)
def test_a_session_gives_the_calls_of_built_in_tools_with_how_they_ended(imported, agent):
    built_in = imported[1][agent].filter(pl.col("server") == agent.split()[0])
    counts = built_in.group_by("tool", "outcome").len().rows()
    assert {(tool, outcome): count for tool, outcome, count in counts} == BUILT_IN[agent]


def test_the_output_of_opencode_run_has_the_calls_of_the_exported_session(tmp_path):
    import_logs(SAMPLES / "opencode-run.jsonl.gz", tmp_path / "run")
    import_logs(SAMPLES / "opencode.json.gz", tmp_path / "export")
    of_run, of_export = (
        [event.get("msg") for event in events(tmp_path / name)] for name in ("run", "export")
    )
    assert of_run == of_export
    assert sum(msg is not None for msg in of_run) == 18


def test_a_call_of_codex_without_an_end_has_no_reply(tmp_path):
    whole = gzip.decompress((SAMPLES / FILES["codex"]).read_bytes()).splitlines(keepends=True)
    last = max(number for number, line in enumerate(whole) if b'"name":"crash"' in line)
    (tmp_path / "rollout.jsonl").write_bytes(b"".join(whole[: last + 1]))
    import_logs(tmp_path / "rollout.jsonl", tmp_path / "t")
    calls = calls_of(tmp_path / "t", tmp_path / "store").sort("requested_at")
    assert calls.select("server", "tool", "arguments", "outcome").row(-1) == (
        *("shaky", "crash", '{"how":3}', "no_response"),
    )
