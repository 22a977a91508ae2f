"""The call that started a task has the task's outcome, whichever frames report its end."""

from pathlib import Path
from typing import Any

import pytest

import mcptally as mt
from tests import sql_over_tables
from tests.transcripts import c2s, call, event, opened, s2c, write

WORKED = {"content": [{"type": "text", "text": "fine"}]}
REFUSED = {"content": [{"type": "text", "text": "count must be at least 1"}], "isError": True}
CRASH = {"code": -32603, "message": "boom"}


def old(status: str, **more: Any) -> dict[str, Any]:
    """A task of 2025-11-25."""
    return {"taskId": "t", "status": status, "ttl": None, **more}


def new(status: str, **more: Any) -> dict[str, Any]:
    """A task of 2026-07-28."""
    return {"resultType": "complete", "taskId": "t", "status": status, "ttlMs": None, **more}


DRAFT = {"_meta": {"modelcontextprotocol.io/task": old("working")}, "content": []}
STARTED = {
    2024: DRAFT,
    2025: {"task": old("working")},
    2026: {**new("working"), "resultType": "task"},
}


def asks(method: str, reply: dict[str, Any] | None, name: str = "t") -> list[tuple[str, Any]]:
    asked = [("c2s", {"method": f"tasks/{method}", "params": {"taskId": name}})]
    return asked if reply is None else [*asked, ("s2c", reply)]


def fetched(result: dict[str, Any]) -> list[tuple[str, Any]]:
    return asks("result", {"result": result})


def polled(task: dict[str, Any], name: str = "t") -> list[tuple[str, Any]]:
    return asks("get", {"result": task}, name)


def refused(method: str, message: str) -> list[tuple[str, Any]]:
    return asks(method, {"error": {"code": -32602, "message": message}})


def notifies(method: str, params: dict[str, Any]) -> list[tuple[str, Any]]:
    return [("s2c", {"method": method, "params": params})]


GIVEN_UP = ("c2s", {"method": "notifications/cancelled", "params": {"reason": "Request timed out"}})
CANCELLED = asks("cancel", {"result": old("cancelled")})
OTHER_TASK = new("completed", result=WORKED) | {"taskId": "u"}

OK, ERROR = ("ok", None, "fine"), ("tool_error", *["count must be at least 1"] * 2)
CRASHED, OPEN = ("protocol_error", "boom", None), ("task", None, None)
ENDS: dict[str, tuple[int, list[tuple[str, Any]], tuple[str, str | None, str | None]]] = {
    "a result that is fetched from a server of the draft": (2024, fetched(WORKED), OK),
    "nothing that is recorded, from a server of the draft": (2024, [], OPEN),
    "a result that is fetched": (2025, fetched(WORKED), OK),
    "an error that is fetched as a result": (2025, fetched(REFUSED), ERROR),
    "an empty result of a task that failed": (
        2025,
        [*polled(old("failed", statusMessage="bad operand")), *fetched({"_meta": {}})],
        ("tool_error", "bad operand", None),
    ),
    "a JSON-RPC error that is fetched": (2025, asks("result", {"error": CRASH}), CRASHED),
    "a refusal of a request for the result of a task that failed is its error": (
        2025,
        [*polled(old("failed")), *refused("result", "bad count")],
        ("protocol_error", "bad count", None),
    ),
    "a status that is polled, where the result is not fetched": (
        2025,
        [*polled(old("working")), *polled(old("failed", statusMessage="no disk"))],
        ("tool_error", "no disk", None),
    ),
    "a notification of its status": (
        2025,
        notifies("notifications/tasks/status", old("completed")),
        ("ok", None, None),
    ),
    "a cancellation": (2025, CANCELLED, ("cancelled", None, None)),
    "a cancellation after which its result is asked for": (
        2025,
        [*CANCELLED, *asks("result", {"error": CRASH})],
        ("cancelled", None, None),
    ),
    "a cancellation that came too late": (
        2025,
        [*refused("cancel", "already completed"), *fetched(WORKED)],
        OK,
    ),
    "a result in its state": (2026, polled(new("completed", result=WORKED)), OK),
    "an error in the result of a completed task": (
        2026,
        polled(new("completed", result=REFUSED)),
        ERROR,
    ),
    "an error in its state": (2026, polled(new("failed", error=CRASH)), CRASHED),
    "a notification with its result": (
        2026,
        notifies("notifications/tasks", new("completed", result=WORKED)),
        OK,
    ),
    "an acknowledged cancellation": (
        2026,
        asks("cancel", {"result": {"resultType": "complete"}}),
        ("cancelled", None, None),
    ),
    "a client that no longer waits for the result": (
        2025,
        [*asks("result", None), GIVEN_UP],
        ("timeout", None, None),
    ),
    "a request for the result that is never answered": (
        2025,
        asks("result", None),
        ("no_response", None, None),
    ),
    "nothing that was recorded": (2026, polled(new("working")), OPEN),
    "the end of another task": (2026, polled(OTHER_TASK, name="u"), OPEN),
    "a request that the server refuses": (2026, refused("get", "unknown task"), OPEN),
}


BEGIN = {era: [("c2s", call(0)), ("s2c", {"result": STARTED[era], "id": 0})] for era in STARTED}


def events_of(frames: list[tuple[str, Any]], recording: str) -> list[dict[str, Any]]:
    """Return the transcript of a pipe with these frames, and add the ids that they need."""
    events, number = [opened(recording)], 0
    for side, frame in frames:
        body = {"jsonrpc": "2.0", **frame}
        if frame.get("method") == "notifications/cancelled":
            body["params"] = {"requestId": number, **frame["params"]}
        elif "id" not in frame and not str(frame.get("method")).startswith("notifications/"):
            number += side == "c2s"
            body["id"] = number
        events.append((c2s if side == "c2s" else s2c)(len(events), body, recording))
    about = {"reason": "eof", "exit_code": 0, "signal": None}
    return [*events, event("close", len(events), recording, **about)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a recording for each row of `ENDS`, and one more."""
    folder = tmp_path_factory.mktemp("tasks")
    events = [
        each
        for name, (era, frames, _) in ENDS.items()
        for each in events_of([*BEGIN[era], *frames], name)
    ]
    write(folder / "a.jsonl", [*events, *events_of(SEVERAL_POLLS, "several polls")])
    mt.score(folder / "a.jsonl", out=folder / "store")
    return folder / "store"


@pytest.mark.parametrize("name", ENDS)
def test_a_task_ends_with(store: Path, name: str) -> None:
    rows = sql_over_tables.ask(
        store,
        "SELECT outcome, error_text, text FROM calls "
        f"WHERE method = 'tools/call' AND recording = '{name}'",
    )
    assert rows.rows() == [ENDS[name][2]]


REFUSED_POLL = {"error": {"code": -32603, "message": "out of memory"}}
SEVERAL_POLLS = [
    *BEGIN[2025],
    *polled(old("failed")),
    *fetched(REFUSED),
    *asks("result", REFUSED_POLL, name="of another recording"),
]


def test_requests_about_a_task_are_neither_successes_nor_failures(store: Path) -> None:
    rows = sql_over_tables.ask(
        store,
        "SELECT method, outcome, verdict, latency_ms FROM calls "
        "WHERE recording = 'several polls' ORDER BY seq",
    )
    assert rows.rows() == [
        ("tools/call", "tool_error", "business", 5.0),
        ("tasks/get", "poll", None, 1.0),
        ("tasks/result", "poll", None, 1.0),
        ("tasks/result", "protocol_error", "tool_failure", 1.0),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("result", "state"),
    [({**WORKED, "structuredContent": {"celsius": 4}}, "invalid"), (None, "none")],
    ids=["an invalid result", "no result, because the client did not fetch it"],
)
def test_the_result_of_a_task_is_validated_against_the_output_schema(
    tmp_path: Path, result: dict[str, Any] | None, state: str
) -> None:
    tool = {"name": "echo", "inputSchema": {"type": "object"}}
    tool["outputSchema"] = {"type": "object", "required": ["degrees"]}
    frames = [
        ("c2s", {"method": "tools/list", "id": "list"}),
        ("s2c", {"result": {"tools": [tool]}, "id": "list"}),
        *BEGIN[2026],
        *asks("get", {"result": new("completed", **({"result": result} if result else {}))}),
    ]
    write(tmp_path / "a.jsonl", events_of(frames, "r"))
    mt.score(tmp_path / "a.jsonl", out=tmp_path / "store")
    rows = sql_over_tables.ask(
        tmp_path / "store", "SELECT output_schema_state FROM calls WHERE tool = 'echo'"
    )
    assert rows.rows() == [(state,)]
