"""A server's lifecycle: its start, its end, and its last words."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

import mcptally as mt
from tests import sql_over_tables
from tests.transcripts import c2s, call, error, event, opened, request, result, s2c, text, write

pytestmark = pytest.mark.slow

MESSAGES: dict[str, Any] = {
    "initialize": request(0, "initialize"),
    "reply": result(0, protocolVersion="2025-11-25"),
    "refusal": error(0, -32601, "no"),
    "probe": request(0, "server/discover"),
    "read": request(2, "resources/read", uri="a:b"),
    "call": call(1),
    "result": text(1),
}
LIVES: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("server_lives.toml").read_text(encoding="utf-8")
)
COLUMNS = ("start", "start_failure", "crash", "ended_by", "last_words")


def events_of(name: str) -> list[dict[str, Any]]:
    life = LIVES[name]
    stderr = [*life.get("stderr", ()), *life.get("hundred_times", ()) * 100]
    waited = sum(each for each in life["messages"] if isinstance(each, int))
    made = [("message", MESSAGES[each]) for each in life["messages"] if not isinstance(each, int)]
    made += [("stderr", line) for line in stderr]
    made += [("raw", line) for line in life.get("stdout", ())]
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
    if "end" in life:
        end = {"exit_code": None, "signal": None} | life["end"]
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
        store, f"SELECT {', '.join(COLUMNS)} FROM recordings WHERE recording = '{name}'"
    )
    (found,) = rows.to_dicts()
    assert found == dict.fromkeys(COLUMNS) | LIVES[name]["expected"]


def test_a_crash_in_another_request_than_a_call_names_it(store: Path) -> None:
    rows = sql_over_tables.ask(
        store,
        "SELECT recording, crash_method, call_id, probe_failed FROM recordings "
        "LEFT JOIN calls USING (recording) WHERE crash_call_id = call_id "
        "OR crash IS NOT NULL AND crash_call_id IS NULL",
    )
    found = {
        row["recording"]: (row["crash_method"], row["probe_failed"]) for row in rows.to_dicts()
    }
    assert found["a crash in another request"] == ("resources/read", False)
    assert found["a crash in a probe"] == ("server/discover", True)
    assert found["a crash in a call beside another request"] == (None, False)
    assert found["a crash between calls"] == (None, False)


def test_servers_that_never_started_come_first_and_say_why(store: Path) -> None:
    servers = mt.open_store(store).ask("servers").pl()
    failed = sum(life["expected"]["start"] in {"failed", "unanswered"} for life in LIVES.values())
    first = servers.head(failed)
    assert servers.height == len(LIVES)
    assert first.select("starts", "failed_starts").unique().rows() == [(1, 1)]
    assert servers.get_column("failed_starts").sum() == failed
    words = dict(first.select("server", "last_words").iter_rows())
    assert words["a missing program"] == "cannot start 'nosuch': No such file or directory"


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
