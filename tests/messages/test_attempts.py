"""Which calls are attempts of the same logical call, and why."""

from typing import Any

import pytest

import mcptally as mt
from tests import sql_over_tables
from tests.transcripts import c2s, call, error, exchange, opened, request, result, s2c, text, write


def needs_input(number: int, **members: Any) -> dict[str, Any]:
    return result(number, resultType="input_required", inputRequests={}, **members)


def with_input(number: int, tool: str, **members: Any) -> dict[str, Any]:
    return request(number, "tools/call", name=tool, arguments={}, inputResponses={}, **members)


def task(number: int, name: str) -> dict[str, Any]:
    return result(number, resultType="task", task={"taskId": name})


def failure(number: int) -> dict[str, Any]:
    return error(number, -32603, "no")


CHAINS: dict[str, tuple[list[tuple[dict[str, Any], dict[str, Any]]], list[tuple[int, Any]]]] = {
    "input continues the call to the same tool": (
        [
            (call(1, "a"), needs_input(1)),
            (call(2, "b"), needs_input(2)),
            (with_input(3, "a"), text(3)),
        ],
        [(1, None), (2, None), (1, "input_required")],
    ),
    "a call without arguments is repeated with none": (
        [
            (request(1, "tools/call", name="a"), failure(1)),
            (call(2, "a"), failure(2)),
            (request(3, "tools/call", name="a"), text(3)),
            (call(4, "a", x=1), text(4)),
        ],
        [(1, None), (1, "retry"), (1, "retry"), (4, None)],
    ),
    "input continues the call of the same prompt": (
        [
            (request(1, "prompts/get", name="a"), needs_input(1)),
            (request(2, "prompts/get", name="b"), needs_input(2)),
            (request(3, "prompts/get", name="a", inputResponses={}), result(3, messages=[])),
        ],
        [(1, None), (2, None), (1, "input_required")],
    ),
    "input continues the call whose state it returns": (
        [
            (call(1, "a"), needs_input(1, requestState="x")),
            (call(2, "a"), needs_input(2, requestState="y")),
            (with_input(3, "a", requestState="x"), text(3)),
        ],
        [(1, None), (2, None), (1, "input_required")],
    ),
    "a request about a task belongs to the call that started it": (
        [
            (call(1, "a"), task(1, "t")),
            (request(2, "tasks/get", taskId="t"), result(2, status="x")),
        ],
        [(1, None), (1, "task")],
    ),
    "a request about a task starts none, whatever its reply says": (
        [
            (request(n, "tasks/get", taskId=str(n)), task(n, str(later)))
            for n, later in ((1, 2), (2, 3), (3, 1))
        ],
        [(1, None), (2, None), (3, None)],
    ),
    "the same call after a failure is a retry": (
        [(call(1, "a"), failure(1)), (call(2, "a"), text(2)), (call(3, "a"), text(3))],
        [(1, None), (1, "retry"), (3, None)],
    ),
    "a call with other arguments after a failure is not a retry": (
        [(call(1, "a", x=1), failure(1)), (call(2, "a", x=2), text(2))],
        [(1, None), (2, None)],
    ),
    "a handshake after a failed probe is a negotiation": (
        [(request(1, "server/discover"), failure(1)), (request(2, "initialize"), result(2))],
        [(1, None), (1, "negotiation")],
    ),
}


MINUTES = 60 * 10**9
PAUSES = {0: "retry", 10 * MINUTES: "retry", 10 * MINUTES + 1: None, -1: None}
"""Nanoseconds from a failure to the repeated call, and whether it is a retry."""


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, Any]]]:
    """Return, by chain or pause, the first attempt of each call and the reason."""
    folder = tmp_path_factory.mktemp("chains")
    (folder / "archive").mkdir()
    for name, (said, _) in CHAINS.items():
        messages = [message for asked_and_answered in said for message in asked_and_answered]
        events = [opened(name), *exchange(*messages, recording=name)]
        write(folder / "archive" / f"{name}.jsonl", events)
    failed_at = opened()["ts_ns"] + 60 * MINUTES
    for pause in PAUSES:
        name = str(pause)
        events = [
            opened(name),
            c2s(1, call(1, "a"), name),
            s2c(2, failure(1), name) | {"ts_ns": failed_at},
            c2s(3, call(2, "a"), name) | {"ts_ns": failed_at + pause},
            s2c(4, text(2), name) | {"ts_ns": failed_at + pause},
        ]
        write(folder / "archive" / f"{name}.jsonl", events)
    mt.score(folder / "archive", out=folder / "store")
    rows = sql_over_tables.ask(
        folder / "store",
        "SELECT c.recording, f.request_id::INTEGER, c.attempt_why FROM calls c "
        "JOIN calls f ON f.call_id = c.attempt_of ORDER BY c.recording, c.seq",
    )
    found: dict[str, list[tuple[Any, Any]]] = {}
    for name, *attempt in rows.iter_rows():
        found.setdefault(name, []).append(tuple(attempt))
    return found


@pytest.mark.parametrize("chain", CHAINS)
def test_calls_of_one_logical_call_are_linked(
    attempts: dict[str, list[tuple[Any, Any]]], chain: str
):
    assert attempts[chain] == CHAINS[chain][1]


def test_a_retry_starts_after_the_failure_is_known_and_within_ten_minutes(
    attempts: dict[str, list[tuple[Any, Any]]],
):
    found = {}
    for pause in PAUSES:
        [_, (_, found[pause])] = attempts[str(pause)]
    assert found == PAUSES
