"""Requests for input from the user or the client's model, and the time a call waits for them."""

from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import mcptally as mt
from tests import sql_over_tables
from tests.transcripts import c2s, call, error, exchange, opened, request, result, s2c, text, write


def asks(id_: Any, **inputs: dict[str, Any]) -> dict[str, Any]:
    return result(id_, resultType="input_required", inputRequests=inputs, requestState="s")


def task_asks(id_: Any, **inputs: dict[str, Any]) -> dict[str, Any]:
    task = {"taskId": "t", "status": "input_required", "inputRequests": inputs}
    return result(id_, resultType="complete", **task)


def again(id_: Any, **answers: dict[str, Any]) -> dict[str, Any]:
    more = {"inputResponses": answers, "requestState": "s"}
    return request(id_, "tools/call", name="echo", arguments={}, **more)


FORM = {"method": "elicitation/create", "params": {"mode": "form", "message": "City?"}}
LINK = {"mode": "url", "elicitationId": "e7", "url": "https://example.org", "message": "Sign in"}
SIGN_IN = {"code": -32042, "message": "Sign in", "data": {"elicitations": [LINK]}}
ACCEPTED = {"city": {"action": "accept"}}
RELATED = {"io.modelcontextprotocol/related-task": {"taskId": "t"}}


class Talk(NamedTuple):
    """A conversation, the legs of its operation, and its requests for input."""

    messages: list[Any]
    """Each comes 1 ms after the one before, or at the time in ms that precedes it."""
    legs: list[tuple[Any, ...]]
    """Outcome, latency and waiting time in ms of each call, and whether another continues it."""
    requests: list[tuple[Any, ...]]
    """Tool, method, mode, answer, and the time in ms until the answer."""


ELICITATION = ("echo", "elicitation/create")
ASKS_FIRST = ("input_required", None, None, True)
TALKS = {
    "chain": Talk(
        [call(1), asks(1, city=FORM), 900, again(2, city={"action": "decline"}), text(2)],
        [ASKS_FIRST, ("ok", 2.0, 898.0, False)],
        [(*ELICITATION, "form", "decline", 898)],
    ),
    "chain of three": Talk(
        [
            *(call(1), asks(1, city=FORM, roots={"method": "roots/list"})),
            *(again(2, city={"action": "accept"}, roots={"roots": []}), asks(2, city=FORM)),
            *(again(3, city={"action": "accept"}), text(3)),
        ],
        [ASKS_FIRST, ASKS_FIRST, ("ok", 3.0, 2.0, False)],
        [*[(*ELICITATION, "form", "accept", 1)] * 2, ("echo", "roots/list", None, None, 1)],
    ),
    "chain that fails": Talk(
        [
            *(call(1), asks(1, city=FORM), again(2, city={"action": "accept"})),
            text(2, "no such city: Oslo", isError=True),
        ],
        [ASKS_FIRST, ("tool_error", 2.0, 1.0, False)],
        [(*ELICITATION, "form", "accept", 1)],
    ),
    "not continued": Talk(
        [call(1), asks(1, city=FORM)],
        [("input_required", 1.0, None, False)],
        [(*ELICITATION, "form", None, None)],
    ),
    "sign-in": Talk(
        [call(1), {"jsonrpc": "2.0", "id": 1, "error": SIGN_IN}, 3000, call(2), text(2)],
        [ASKS_FIRST, ("ok", 2.0, 2998.0, False)],
        [(*ELICITATION, "url", None, 2998)],
    ),
    "request of the server": Talk(
        [
            *(call(1), ("s2c", request(0, "elicitation/create", message="City?"))),
            *(50, ("c2s", result(0, action="cancel")), text(1)),
        ],
        [("ok", 2.0, 48.0, False)],
        [(*ELICITATION, "form", "cancel", 48)],
    ),
    "two open calls": Talk(
        [
            *(call(1), call(2, "other"), ("s2c", request(0, "sampling/createMessage"))),
            *(("c2s", result(0, model="m")), text(1), text(2)),
        ],
        [("ok", 4.0, None, False), ("ok", 4.0, None, False)],
        [(None, "sampling/createMessage", None, None, 1)],
    ),
    "task": Talk(
        [
            *(call(1), result(1, resultType="task", taskId="t", status="working")),
            *(request(2, "tasks/get", taskId="t"), task_asks(2, city=FORM)),
            *(300, request(3, "tasks/get", taskId="t"), task_asks(3, city=FORM)),
            *(900, request(4, "tasks/update", taskId="t", inputResponses=ACCEPTED)),
            *(result(4, resultType="complete"), request(5, "tasks/get", taskId="t")),
            result(
                5, resultType="complete", taskId="t", status="completed", result={"content": []}
            ),
        ],
        [("ok", 6.0, 896.0, False)],
        [(*ELICITATION, "form", "accept", 896)],
    ),
    "two open calls, of which one started the task": Talk(
        [
            *(call(1), result(1, task={"taskId": "t", "status": "working"}), call(2, "other")),
            ("s2c", request(0, "elicitation/create", mode="url", _meta=RELATED)),
            *(("c2s", result(0, action="accept")), text(2)),
        ],
        [("task", None, 1.0, False), ("ok", 3.0, None, False)],
        [(*ELICITATION, "url", "accept", 1)],
    ),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talks")
    events = []
    for name, talk in TALKS.items():
        begin, at, seq = opened(name), 0, 0
        events.append(begin)
        for each in talk.messages:
            if isinstance(each, int):
                at = each - 1
                continue
            at, seq = at + 1, seq + 1
            side, body = each if isinstance(each, tuple) else (None, each)
            side = side or ("c2s" if "method" in body else "s2c")
            message = (c2s if side == "c2s" else s2c)(seq, body, name)
            events.append(message | {"ts_ns": begin["ts_ns"] + at * 1_000_000})
    write(folder / "a.jsonl", events)
    mt.score(folder / "a.jsonl", out=folder / "store")
    return folder / "store"


@pytest.mark.parametrize("talk", TALKS)
def test_the_last_leg_carries_the_outcome_and_the_servers_share_of_the_time(
    store: Path, talk: str
) -> None:
    rows = sql_over_tables.ask(
        store,
        "SELECT outcome, round(latency_ms, 3), round(waiting_ms, 3), continued_by IS NOT NULL "
        f"FROM calls WHERE recording = '{talk}' AND tool IS NOT NULL ORDER BY seq",
    )
    assert rows.rows() == TALKS[talk].legs


def test_rates_count_a_chain_once(store: Path) -> None:
    rows = sql_over_tables.ask(
        store,
        "SELECT recording, sum(calls), sum(ok), sum(tool_errors), sum(input_required) "
        "FROM usage WHERE tool = 'echo' GROUP BY recording",
    )
    found = {name: counts for name, *counts in rows.iter_rows()}
    assert found["chain of three"] == [1, 1, 0, 0]
    assert found["chain that fails"] == [1, 0, 1, 0]
    assert found["sign-in"] == [1, 1, 0, 0]
    assert found["not continued"] == [1, 0, 0, 1]


@pytest.mark.parametrize("talk", TALKS)
def test_a_request_for_input_is_listed_with_its_answer(store: Path, talk: str) -> None:
    rows = sql_over_tables.ask(
        store,
        "SELECT tool, method, mode, action, "
        "round(epoch_ms(answered_at) - epoch_ms(asked_at))::INTEGER FROM input_requests "
        f"WHERE recording = '{talk}' ORDER BY method, mode",
    )
    assert rows.rows() == TALKS[talk].requests


def test_elicitations_says_how_users_answer(store: Path) -> None:
    asked = mt.open_store(store).ask("elicitations").pl().filter(pl.col("mode") == "form")
    columns = "shown", "accepted", "declined", "cancelled", "cancelled_at_once", "unanswered"
    assert asked.select(columns).row(0) == (7, 4, 1, 1, 1, 1)


@pytest.mark.slow
def test_calls_of_which_none_has_an_issue_are_scored(tmp_path: Path) -> None:
    """Empty lists are written, whatever offsets polars gives them."""
    unknown = -32602, "Unknown tool"
    talk = [call(1), asks(1, city=FORM), again(2, city={}), text(2), call(3, "gone")]
    roots = [s2c(7, request(0, "roots/list")), c2s(8, error(0, *unknown))]
    write(tmp_path / "a.jsonl", [opened(), *exchange(*talk, error(3, *unknown)), *roots])
    assert mt.score(tmp_path / "a.jsonl", out=tmp_path / "store").rows["calls"] == 4


@pytest.mark.slow
def test_waiting_is_a_sum_of_whole_nanoseconds(tmp_path: Path) -> None:
    first, second = 378_479_249, 691_400_507
    moments = [0, 0, 1000, 1000 + first, 2 * 10**9, 2 * 10**9 + second, 3 * 10**9]
    accepted = {"action": "accept", "content": {}}
    made = [
        opened("r1"),
        c2s(1, call(1)),
        s2c(2, request(7, "elicitation/create", message="City?")),
        c2s(3, result(7, **accepted)),
        s2c(4, request(8, "elicitation/create", message="Country?")),
        c2s(5, result(8, **accepted)),
        s2c(6, text(1)),
    ]
    start = made[0]["ts_ns"]
    timed = zip(made, moments, strict=True)
    write(tmp_path / "a.jsonl", [each | {"ts_ns": start + at} for each, at in timed])
    mt.score(tmp_path / "a.jsonl", out=tmp_path / "store")
    query = "SELECT waiting_ms FROM calls WHERE method = 'tools/call'"
    assert sql_over_tables.ask(tmp_path / "store", query).rows() == [(1069.879756,)]
    assert first / 1e6 + second / 1e6 != 1069.879756
