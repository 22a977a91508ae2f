"""A server's lifecycle: its start, its end, and its last words."""

from pathlib import Path
from typing import Any

import pytest

import mcptally as mt
from tests import sql_over_tables
from tests.transcripts import c2s, call, event, opened, s2c, text, write

pytestmark = pytest.mark.slow

MODULE = ["Traceback (most recent call last):", '  File "a.py", line 1', "    import gone"]
NODE = ["node:internal/modules/cjs/loader:1210", "  throw err;", "  ^", ""]
NODE += ["Error: Cannot find module 'gone'", "    at Module._load (node:internal:1)", "Node.js v20"]
GONE = ["Traceback (most recent call last):", "KeyboardInterrupt"]
BOOM = ["listening on stdio", "Traceback (most recent call last):", "RuntimeError: boom", "bye"]


def ends(reason: str = "server_exited", **fields: Any) -> dict[str, Any]:
    return {"reason": reason, "exit_code": None, "signal": None, **fields}


def exits(code: int) -> dict[str, Any]:
    return ends(exit_code=code)


ASKS: list[Any] = [{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}]
REPLY = {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": "2025-11-25"}}
REFUSAL = {"jsonrpc": "2.0", "id": 0, "error": {"code": -32601, "message": "no"}}
READY = [*ASKS, REPLY]
LOST = "Could not download: Name or service not known"
DOWNLOAD = f"2026-11-21 20:41:14.397 | ERROR    | app.main:get:712 - {LOST}"
HOME = "Error: EACCES: permission denied, mkdir '/home/x/.app'"
PATH = "cannot start 'nosuch': No such file or directory"

# Messages, stderr, end; start, reason of its failure, crash, who ended the server, last words
LIVES: dict[str, tuple[list[Any], list[str], dict[str, Any], tuple[Any, ...]]] = {
    "a missing program": (
        ASKS,
        [],
        ends("not_started", exit_code=127, detail=PATH),
        ("failed", "missing_program", None, None, PATH),
    ),
    "a program without permission": (
        ASKS,
        [],
        ends("not_started", exit_code=127, detail="cannot start './s': Permission denied"),
        ("failed", "misconfigured", None, None, "cannot start './s': Permission denied"),
    ),
    "a program that a shell does not find": (
        ASKS,
        ["sh: 1: foo-mcp: not found"],
        exits(127),
        ("failed", "missing_program", None, "server", "sh: 1: foo-mcp: not found"),
    ),
    "a variable that is not set": (
        ASKS,
        ["starting", "Error: GITHUB_TOKEN environment variable is not set", "See README.md"],
        exits(1),
        (
            "failed",
            "misconfigured",
            None,
            "server",
            "Error: GITHUB_TOKEN environment variable is not set",
        ),
    ),
    "a missing module of Python": (
        ASKS,
        [*MODULE, "ModuleNotFoundError: No module named 'gone'"],
        exits(1),
        (
            "failed",
            "broken_dependency",
            None,
            "server",
            "ModuleNotFoundError: No module named 'gone'",
        ),
    ),
    "a missing module of Node": (
        ASKS,
        NODE,
        exits(1),
        ("failed", "broken_dependency", None, "server", "Error: Cannot find module 'gone'"),
    ),
    "an exception whose members follow it": (
        ASKS,
        [
            "Error: Connection terminated",
            "    at Client.idle (index.js:62:37) {",
            *("  [Symbol(kCapture)]: false", "  severity: 'FATAL',", "  error: undefined,") * 100,
        ],
        exits(1),
        ("failed", "crashed", "start", "server", "Error: Connection terminated"),
    ),
    "an exception in a frame": (
        ASKS,
        [
            "  | app.ValidationError: 24 errors for Request",
            "    For further information visit https://errors.pydantic.dev/2.10/v/literal_error",
        ],
        exits(1),
        ("failed", "crashed", "start", "server", "app.ValidationError: 24 errors for Request"),
    ),
    "a crash before the handshake is answered": (
        ASKS,
        BOOM,
        exits(1),
        ("failed", "crashed", "start", "server", "RuntimeError: boom"),
    ),
    "a crash after another era was refused": (
        [*ASKS, REFUSAL, *ASKS],
        [],
        ends("server_killed", signal=11),
        ("failed", "crashed", "start", "server", None),
    ),
    "no answer in 5 s": (
        [*ASKS, 4998],
        [],
        ends("client_gone", exit_code=0),
        ("unanswered", "no_answer", None, "client", None),
    ),
    "an end before 5 s": (
        [*ASKS, 4997],
        [],
        exits(0),
        ("unused", None, None, "client", None),
    ),
    "nothing but an error in 5 s": (
        [*ASKS, REFUSAL, 5000],
        [],
        ends("client_gone", exit_code=0),
        ("unused", None, None, "client", None),
    ),
    "no answer in 5 s after another era was refused": (
        [*ASKS, REFUSAL, *ASKS, 5000],
        [],
        ends("client_gone", exit_code=0),
        ("unanswered", "no_answer", None, "client", None),
    ),
    "no answer in 5 s, and a recorder that was killed": (
        [*ASKS, 4998],
        ["still loading"],
        {},
        ("unanswered", "no_answer", None, None, "still loading"),
    ),
    "a recorder that was killed before 5 s": (
        [*ASKS, 4997],
        ["still loading"],
        {},
        ("unused", None, None, None, None),
    ),
    "no request": ([], ["ready"], exits(0), ("unused", None, None, "client", None)),
    "an end in order": (READY, ["warning: slow"], exits(0), ("ready", None, None, "client", None)),
    "a signal that the client sends": (
        READY,
        [],
        ends("signalled", signal=15),
        ("ready", None, None, "client", None),
    ),
    "an exit code that names a signal": (
        READY,
        BOOM,
        exits(143),
        ("ready", None, None, "client", None),
    ),
    "a signal from somewhere": (
        READY,
        [],
        ends("server_killed", signal=9),
        ("ready", None, None, None, None),
    ),
    "a crash between calls": (
        [*READY, call(1), text(1)],
        BOOM,
        exits(1),
        ("ready", None, "idle", "server", "RuntimeError: boom"),
    ),
    "a crash in a call": (
        [*READY, call(1)],
        BOOM,
        exits(1),
        ("ready", None, "call", "server", "RuntimeError: boom"),
    ),
    "an error because the client is gone": (
        READY,
        GONE,
        exits(1),
        ("ready", None, None, None, "KeyboardInterrupt"),
    ),
    "a crash at the start that another recorder recorded": (
        ASKS,
        BOOM,
        ends("server-stdout-eof", exit_code=1),
        ("failed", "crashed", "start", "server", "RuntimeError: boom"),
    ),
    "an exit code after the client of another recorder closed stdin": (
        READY,
        BOOM,
        ends("stdin-eof", exit_code=1),
        ("ready", None, None, None, None),
    ),
    "a signal that another recorder recorded as a negative exit code": (
        READY,
        BOOM,
        ends("server-stdout-eof", exit_code=-9),
        ("ready", None, None, "client", None),
    ),
    "a missing configuration file": (
        ASKS,
        ["Error: failed to load kubeconfig: stat /nope: no such file or directory"],
        exits(1),
        (
            "failed",
            "misconfigured",
            None,
            "server",
            "Error: failed to load kubeconfig: stat /nope: no such file or directory",
        ),
    ),
    "a download that failed long before the exception": (
        [*ASKS, 6000],
        [DOWNLOAD, "INFO: no such file in the cache", *MODULE[:2], "ValueError: Could not load it"],
        ends("stdin-eof", exit_code=1),
        ("failed", "network", None, "server", LOST),
    ),
    "an error before the exception that names the cause": (
        ASKS,
        [DOWNLOAD, "Error: listen EADDRINUSE: address already in use"],
        exits(1),
        (
            "failed",
            "misconfigured",
            None,
            "server",
            "Error: listen EADDRINUSE: address already in use",
        ),
    ),
    "an outage that a server retried before it crashed in a call": (
        [*READY, call(1)],
        [DOWNLOAD, "RuntimeError: boom"],
        exits(1),
        ("ready", None, "call", "server", "RuntimeError: boom"),
    ),
    "a folder that it may not write before 5 s": (
        ASKS,
        [HOME],
        ends("stdin-eof", exit_code=1),
        ("failed", "misconfigured", None, "server", HOME),
    ),
    "an error because the client is gone before an answer": (
        ASKS,
        GONE,
        ends("stdin-eof", exit_code=1),
        ("unused", None, None, None, None),
    ),
    "a database that is down": (
        ASKS,
        ["psycopg.OperationalError: connection refused"],
        exits(1),
        ("failed", "upstream", None, "server", "psycopg.OperationalError: connection refused"),
    ),
    **{
        "last words: " + line.replace("'", ""): (
            ASKS,
            [line],
            exits(1),
            ("failed", why, crash, "server", line),
        )
        for line, why, crash in (
            ("Error: Cannot find module '/srv/app/main.js'", "misconfigured", None),
            ("Error: invalid value my-db.sqlite", "misconfigured", None),
            ("Error: boom in my-db.sqlite", "crashed", "start"),
            ("KeyError: 'API_KEY'", "misconfigured", None),
            ("KeyError: 'config'", "crashed", "start"),
            ("Error: Tool t got an unrecognized object", "crashed", "start"),
            (
                "Error: Cannot find package 'x' imported from /srv/app/main.js",
                "broken_dependency",
                None,
            ),
            ("AttributeError: 'Server' object has no attribute 'tool'", "broken_dependency", None),
            ("AttributeError: module 'app' has no attribute 'x'", "broken_dependency", None),
            ("AttributeError: 'NoneType' object has no attribute 'x'", "crashed", "start"),
            ("TypeError: missing 1 required argument: 'config'", "crashed", "start"),
            ("TypeError: server.tool is not a function", "broken_dependency", None),
        )
    },
    "an exit code without a word": (READY, [], exits(1), ("ready", None, None, "server", None)),
    "a recording that was cut off": (READY, [], {}, ("ready", None, None, None, None)),
}
NOISE = ["listening", "[info] ready"]


def events_of(name: str) -> list[dict[str, Any]]:
    said, stderr, end, _ = LIVES[name]
    waited = sum(each for each in said if isinstance(each, int))
    made: list[tuple[str, Any]] = [("message", each) for each in said if not isinstance(each, int)]
    made += [("stderr", line) for line in stderr]
    made += [("raw", line) for line in NOISE if name == "an end in order"]
    command = ["node", "/srv/app/main.js", "--db=my-db.sqlite"]
    events = [opened(name, server=name, command=command)]
    for kind, each in made:
        seq = len(events)
        if kind == "message":
            events.append((c2s if "method" in each else s2c)(seq, each, name))
        elif kind == "stderr":
            events.append(event("stderr", seq, name, text=each))
        else:
            about = {"dir": "s2c", "scope": None, "bytes": 9, "why": "not_json"}
            events.append(event("raw", seq, name, text=each, **about))
    if end:
        events.append(event("close", len(events), name, **end))
    events[-1]["ts_ns"] += waited * 1_000_000
    return events


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lives")
    events = [each for name in LIVES for each in events_of(name)]
    write(folder / "a.jsonl", events)
    mt.score(folder / "a.jsonl", out=folder / "store")
    return folder / "store"


@pytest.mark.parametrize("name", LIVES)
def test_the_life_of_a_server_with(store: Path, name: str) -> None:
    rows = sql_over_tables.ask(
        store,
        "SELECT start, start_failure, crash, ended_by, last_words FROM recordings "
        f"WHERE recording = '{name}'",
    )
    assert rows.rows() == [LIVES[name][3]]


def test_servers_that_never_started_come_first_and_say_why(store: Path) -> None:
    servers = mt.open_store(store).ask("servers").pl()
    failed = sum(life[3][0] in {"failed", "unanswered"} for life in LIVES.values())
    first = servers.head(failed)
    assert servers.height == len(LIVES)
    assert first.select("starts", "failed_starts").unique().rows() == [(1, 1)]
    assert servers.get_column("failed_starts").sum() == failed
    words = dict(first.select("server", "last_words").iter_rows())
    assert words["a missing program"] == PATH


def test_the_example_of_a_failed_start_does_not_depend_on_the_order_of_recordings(
    tmp_path: Path,
) -> None:
    """Both recordings have the same server, time and failure."""
    events = events_of("a missing program")
    lives = [[{**each, "recording": name} for each in events] for name in ("r1", "r2")]
    examples = set()
    for place, order in enumerate((lives, lives[::-1])):
        write(tmp_path / f"{place}.jsonl", [each for life in order for each in life])
        mt.score(tmp_path / f"{place}.jsonl", out=tmp_path / f"{place}")
        servers = mt.open_store(tmp_path / f"{place}").ask("servers").pl()
        examples |= set(servers.select("starts", "recording").rows())
    assert examples == {(2, "r2")}


def test_servers_that_never_started_are_in_server_scores(store: Path) -> None:
    scores = mt.open_store(store).ask("server_scores").pl()
    rows = scores.filter(server="a variable that is not set")
    assert rows.select("calls", "starts", "failed_starts", "confidence").rows() == [(0, 1, 1, None)]


def test_failed_starts_crashes_between_calls_and_noise_are_problems(store: Path) -> None:
    problems = mt.open_store(store).sql(
        "SELECT server, kind, affected, total, cause FROM _server_problems"
    )
    found = {(server, kind): rest for server, kind, *rest in problems.fetchall()}
    assert found["a variable that is not set", "not_started"] == [1, 1, "misconfigured"]
    assert found["a crash between calls", "crash"] == [1, 1, "crashed"]
    assert found["an end in order", "noise"] == [2, 4, None]
    assert not any(server == "a signal from somewhere" for server, _ in found)
