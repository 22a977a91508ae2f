"""Scripts that repeat a recorded call: they run against a mock of the recorded server."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mcptally as mt
from mcptally.errors import QueryError, UsageError
from mcptally.output import mock
from mcptally.output.repro import script
from tests.output.test_mock import over_http
from tests.transcripts import call, exchange, opened, request, result, text, write

pytestmark = pytest.mark.slow

TOKEN = "ghp_" + "a1B2c3D4e5" * 4
INJECTION = '"""\nraise SystemExit(7)  # \\'
MISSING = "Error: no file 'b' in /data/17"
DEEP = json.loads("[" * 240 + "]" * 240)
LISTED = [
    {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "write", "inputSchema": {"type": "object"}},
]


def recorded(path: Path, error: str) -> Path:
    """A recording whose `read` of a missing file gets the error."""
    events = exchange(
        *(request(1, "tools/list"), result(1, tools=LISTED)),
        *(call(2, "write", path="a", content="new"), text(2, "written")),
        *(call(3, "read", path="b"), text(3, error, isError=True)),
        *(call(4, "write", path="c", key=TOKEN), text(4, "Error: disk full", isError=True)),
        *(call(5, INJECTION, path=INJECTION), text(5, INJECTION, isError=True)),
        request(6, "resources/read", uri="x:y"),
        call(7, "read", path="late"),
        *(call(8, "read", path=DEEP), text(8, "no path", isError=True)),
    )
    return write(path, [opened(command=["files", "--token", TOKEN]), *events])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repro")
    archive = recorded(folder / "traces.jsonl", MISSING)
    mt.score([archive], out=folder / "store")
    return mt.open_store(folder / "store")


def id_of(store, seq: int) -> str:
    ((found,),) = store.sql("SELECT call_id FROM calls WHERE seq = ?", params=[seq]).fetchall()
    return found


def executed(source: str, server, monkeypatch, *arguments: str) -> int:
    """Return a script's exit code; None: it uses the recorded server, not one in this process."""
    namespace = {"__name__": "repro"}
    exec(compile(source, "repro.py", "exec"), namespace)  # noqa: S102
    if server is not None:
        namespace["connection"] = lambda _: contextlib.nullcontext(server)
    monkeypatch.setattr(sys, "argv", ["repro.py", *arguments])
    return asyncio.run(namespace["main"]())


def recorded_server(store):
    return mock.mock_server(mock.read([store.path]))


def test_a_failure_that_happens_again_is_the_same(store, monkeypatch, capsys):
    source = script(store, id_of(store, 5), command=["files"])
    assert executed(source, recorded_server(store), monkeypatch) == 0
    said = capsys.readouterr().out
    assert "left out: 1 earlier calls that may change data" in said
    assert "same: tool_error" in said


@pytest.mark.parametrize(
    ("error", "code"), [("Error: no file 'q' in /tmp/3", 0), ("Error: permission denied", 1)]
)
def test_errors_are_the_same_if_only_what_varies_differs(store, tmp_path, monkeypatch, error, code):
    other = mock.mock_server(mock.read([recorded(tmp_path / "traces.jsonl", error)]))
    source = script(store, id_of(store, 5), command=["files"])
    assert executed(source, other, monkeypatch) == code


def test_tools_that_may_change_data_run_only_if_allowed(store, monkeypatch, capsys):
    source = script(store, id_of(store, 7), command=["files"])
    monkeypatch.setenv("REPRO_1_KEY", TOKEN)
    assert executed(source, recorded_server(store), monkeypatch) == 2
    assert "--allow-writes runs it" in capsys.readouterr().out
    assert executed(source, recorded_server(store), monkeypatch, "--allow-writes") == 0
    assert "before: write: ok" in capsys.readouterr().out
    allowed = script(store, id_of(store, 7), command=["files"], read_only=["write"])
    assert executed(allowed, recorded_server(store), monkeypatch) == 0


def test_a_call_without_a_reply_is_the_same_if_it_gets_none_in_time(store, monkeypatch):
    silent = mock.mock_server(mock.read([store.path], failures="all"))
    source = script(store, id_of(store, 12), command=["files"]).replace(
        "SECONDS = 30", "SECONDS = 0"
    )
    assert executed(source, silent, monkeypatch) == 0


def test_secrets_become_environment_variables_that_the_script_names(store):
    source = script(store, id_of(store, 7))
    assert TOKEN not in source
    head = source.split('"""')[1]
    assert "REPRO_1_TOKEN" in head
    assert "SERVER = ['files', '--token', os.environ['REPRO_1_TOKEN']]" in source
    assert "'key': os.environ['REPRO_1_TOKEN']" in source  # the same secret
    other = TOKEN[:-1] + "X"
    source = script(store, id_of(store, 7), command=["files", other, TOKEN])
    assert (other in source, TOKEN in source) == (False, False)
    assert "['files', os.environ['REPRO_1_VALUE'], os.environ['REPRO_2_VALUE']]" in source


def test_recorded_text_is_never_code(store, monkeypatch):
    source = script(store, id_of(store, 9), command=["files", INJECTION])
    assert executed(source, recorded_server(store), monkeypatch, "--allow-writes") == 0


def test_deeply_nested_arguments_are_json_because_python_cannot_parse_them(store):
    source = script(store, id_of(store, 13), command=["files"])
    namespace = {"__name__": "repro"}
    exec(compile(source, "repro.py", "exec"), namespace)  # noqa: S102
    assert namespace["ARGUMENTS"] == {"path": DEEP}


@pytest.mark.parametrize(
    ("seq", "error", "words"),
    [(11, UsageError, "is resources/read; only calls to tools"), (None, QueryError, "no call has")],
)
def test_what_cannot_be_repeated_is_an_error(store, seq, error, words):
    with pytest.raises(error, match=words):
        script(store, "zz" if seq is None else id_of(store, seq))


def test_without_a_recorded_command_one_must_be_given(tmp_path):
    events = [opened(command=None), *exchange(call(1), text(1))]
    mt.score([write(tmp_path / "traces.jsonl", events)], out=tmp_path / "store")
    store = mt.open_store(tmp_path / "store")
    with pytest.raises(UsageError, match="give the command after `--`"):
        script(store, id_of(store, 1))
    assert "SERVER = ['files', 'a']" in script(store, id_of(store, 1), command=["files", "a"])


PYTHON = [sys.executable, "-m", "mcptally"]


def calls_of_tools(archive: Path, store: Path) -> list[tuple[str, ...]]:
    mt.score([archive], out=store)
    columns = "SELECT server, transport, tool, outcome, error_text FROM calls"
    return mt.open_store(store).sql(f"{columns} WHERE tool IS NOT NULL").fetchall()


def test_the_command_runs_the_script_and_exits_with_its_code(store, tmp_path):
    again = tmp_path / "again"

    def run(*arguments):
        command = [*PYTHON, "repro", str(store.path), id_of(store, 5), "--run", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    code, said = run("--record", str(again), "--", *PYTHON, "mock", str(store.path))
    assert (code, "same: tool_error" in said) == (0, True)
    assert f"next: mcptally score {again}" in said
    found = calls_of_tools(again, tmp_path / "store")
    assert found == [("demo", "stdio", "read", "tool_error", MISSING)]
    code, said = run("--", "no-such-command")
    assert (code, "cannot connect to the server" in said) == (2, True)


def test_a_call_over_http_is_recorded_by_a_recorder_in_front_of_the_server(
    store, tmp_path, monkeypatch
):
    with over_http(store.path) as address:
        events = [
            opened(command=None, url=address, transport="streamable_http"),
            *exchange(call(1, "read", path="b"), text(1, MISSING, isError=True)),
        ]
        mt.score([write(tmp_path / "traces.jsonl", events)], out=tmp_path / "over_http")
        asked, again = mt.open_store(tmp_path / "over_http"), tmp_path / "again"
        source = script(asked, id_of(asked, 1), read_only=["read"])
        assert executed(source, None, monkeypatch, "--record", str(again)) == 0
    found = calls_of_tools(again, tmp_path / "store")
    assert found == [("demo", "streamable_http", "read", "tool_error", MISSING)]


TIME = Path(os.environ.get("MCPTALLY_SERVERS", "/nowhere")) / "bin" / "mcp-server-time"


@pytest.mark.server
@pytest.mark.skipif(
    not TIME.exists(),
    reason="no mcp-server-time: bash .ci/servers.sh FOLDER, MCPTALLY_SERVERS=FOLDER",
)
def test_a_failure_of_a_real_server_is_recorded_when_it_is_repeated(tmp_path, monkeypatch):
    error = "Invalid timezone: 'No time zone found with key Nowhere/Else'"
    said = f"Error executing tool get_current_time: {error}"
    events = [
        opened(command=[str(TIME), "--local-timezone", "UTC"], server="time"),
        *exchange(
            call(1, "get_current_time", timezone="Nowhere/Else"), text(1, said, isError=True)
        ),
    ]
    mt.score([write(tmp_path / "traces.jsonl", events)], out=tmp_path / "store")
    asked, again = mt.open_store(tmp_path / "store"), tmp_path / "again"
    source = script(asked, id_of(asked, 1))
    assert executed(source, None, monkeypatch, "--allow-writes", "--record", str(again)) == 0
    found = calls_of_tools(again, tmp_path / "store2")
    assert found == [("time", "stdio", "get_current_time", "tool_error", said)]
