"""A cancellation and a client's time limit have the same effect on every transport."""

from pathlib import Path
from typing import Any

import pytest

from mcptally.pipeline.partition import gather
from tests.transcripts import c2s, call, event, opened, request, s2c, write

pytestmark = pytest.mark.slow

MS = 1_000_000
LIMIT, ESCAPE = "timed out after 2.0s", "caller cancelled"
CANCELLED = {"code": -32800, "message": "Request cancelled"}
OF_SDK_1 = {"code": 0, "message": "Request cancelled"}
FAILED = {"code": -32603, "message": "connect ECONNREFUSED"}


def notified(reason: str, *replies: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a pipe on which the call is cancelled and the server then sends these messages."""
    params = {"requestId": 1, "reason": reason}
    cancel = c2s(2, {"method": "notifications/cancelled", "params": params})
    return [cancel, *(s2c(3, {"jsonrpc": "2.0", "id": 1, **reply}) for reply in replies)]


def closed(after_ms: int, side: str = "client") -> list[dict[str, Any]]:
    """Return an HTTP exchange that one side closes."""
    end = event("http", 2, dir="c2s", phase="end", scope="x1", closed_by=side)
    return [{**end, "ts_ns": c2s(1, {})["ts_ns"] + after_ms * MS}]


def refused(status: int = 404, **own: str) -> dict[str, Any]:
    """Return the head of a response that refuses the request."""
    head = event("http", 2, dir="s2c", phase="response", scope="x1", status=status, **own)
    return {**head, "ts_ns": c2s(1, {})["ts_ns"] + MS}


ABORTED = {"content": [{"type": "text", "text": "AbortError: aborted"}], "isError": True}
CASES = {
    "a time limit on a pipe": (notified(LIMIT), "timeout"),
    "a user's cancellation on a pipe": (notified(ESCAPE), "cancelled"),
    "a time limit that the server confirms": (notified(LIMIT, {"error": CANCELLED}), "timeout"),
    "a confirmed cancellation": (notified(ESCAPE, {"error": CANCELLED}), "cancelled"),
    "one that an older server confirms": (notified(ESCAPE, {"error": OF_SDK_1}), "cancelled"),
    "one that the tool reports as its error": (notified(ESCAPE, {"result": ABORTED}), "cancelled"),
    "a failure that came later": (notified(ESCAPE, {"error": FAILED}), "protocol_error"),
    "a result that came later": (notified(ESCAPE, {"result": {"content": []}}), "ok"),
    "an exchange that is closed at a time limit": (closed(2000), "timeout"),
    "an exchange that is closed 15 ms before a time limit": (closed(1985), "timeout"),
    "an exchange that is closed 45 ms after a time limit": (closed(2045), "timeout"),
    "an exchange that is closed before that": (closed(1984), "cancelled"),
    "an exchange that is closed after that": (closed(2046), "cancelled"),
    "an exchange that is closed after 37 s, no usual limit": (closed(37_000), "cancelled"),
    "an exchange that is closed at once": (closed(5), "cancelled"),
    "an exchange that the server closes": (closed(2000, "server"), "no_response"),
    "an exchange that is closed after a refusal": ([refused(), *closed(5)], "no_response"),
    "an exchange that is closed after a success": ([refused(200), *closed(5)], "cancelled"),
}


def row_of(folder: Path, asked: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of a request that is followed by these events, on a pipe or over HTTP."""
    scope = "x1" if events and events[0]["event"] == "http" else None
    archive = write(folder / "a.jsonl", [opened(), c2s(1, asked, scope=scope), *events])
    [row] = gather([archive], ["a"]).calls.filter(dir="c2s").to_dicts()
    return row


@pytest.mark.parametrize("name", CASES)
def test_the_outcome_of(tmp_path: Path, name: str) -> None:
    events, outcome = CASES[name]
    row = row_of(tmp_path, call(1), events)
    assert row["outcome"] == outcome
    if outcome in {"timeout", "cancelled"}:
        assert (row["error_text"], row["error_code"], row["latency_ms"]) == (None, None, None)


GONE = {"id": "listen-1", "error": {"code": -32000, "message": "Connection closed"}}
ENDS = {
    "closed by the client": closed(30_000),
    "end of pipe": [],
    "an error of the server when the client leaves": [s2c(2, {"jsonrpc": "2.0", **GONE})],
}


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
def test_the_end_of_a_subscription_is_no_failure(
    tmp_path: Path, ends: list[dict[str, Any]]
) -> None:
    listen = request("listen-1", "subscriptions/listen")
    assert row_of(tmp_path, listen, ends)["outcome"] == "cancelled"


def raw(words: str) -> dict[str, Any]:
    return event("raw", 3, dir="s2c", scope="x1", why="not_json", bytes=len(words), text=words)


NO_ID = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}
REFUSALS = {
    "its status": ([refused(405)], "HTTP 405"),
    "its status and body": (
        [refused(405), raw("Method Not Allowed")],
        "HTTP 405: Method Not Allowed",
    ),
    "its status without a web page": ([refused(404), raw("<!DOCTYPE html>")], "HTTP 404"),
    "its error without an id": ([refused(404), s2c(3, NO_ID, scope="x1")], "Session not found"),
    "why the recorder had no connection to the server": (
        [refused(502, why="connection refused"), *closed(1, "proxy")],
        "HTTP 502: mcptally: no connection to the server: connection refused",
    ),
    "why the recorder refused the request": (
        [refused(403, why="foreign Host"), *closed(1, "proxy")],
        "HTTP 403: mcptally: request refused: foreign Host",
    ),
    "nothing of an accepted request": ([refused(202), raw("Accepted")], None),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_the_text_of_a_call_whose_http_request_is_refused_is(tmp_path: Path, name: str) -> None:
    events, text = REFUSALS[name]
    row = row_of(tmp_path, call(1), events)
    assert (row["outcome"], row["error_text"]) == ("no_response", text)
