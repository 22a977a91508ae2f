"""The verdict uses how a recording ended and how many concurrent calls failed."""

import json

import pytest

from tests.scored_cases import Cases
from tests.transcripts import c2s, call, error, event, exchange, opened, request, s2c, text

CASES = Cases()


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Return the calls of a case in the order in which they were made."""
    scored = CASES.score(tmp_path_factory.mktemp("evidence"))
    return lambda case: scored.rows("calls", case).sort("seq")


ENDS = {
    "the server crashed": ({"exit_code": 1, "signal": None}, "tool_failure"),
    "the server aborted": ({"exit_code": None, "signal": "SIGABRT"}, "tool_failure"),
    "the server was killed": ({"exit_code": None, "signal": "SIGKILL"}, "infrastructure"),
    "the server was killed, by number": ({"exit_code": None, "signal": 9}, "infrastructure"),
}


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        (
            CASES.add(
                opened(),
                *exchange(call(1), text(1), call(2)),
                event("close", 4, reason="server_exited", **end),
            ),
            verdict,
        )
        for end, verdict in ENDS.values()
    ],
    ids=ENDS,
)
def test_the_end_of_the_server_decides_the_verdict_on_calls_in_flight(judged, case, verdict):
    assert judged(case).row(1, named=True)["verdict"] == verdict


ANSWERED_LATER = CASES.add(
    opened(),
    *exchange(call(1), call(2), text(2)),
    event("close", 5, reason="server_exited", exit_code=1, signal=None),
)


def test_the_end_of_the_server_is_no_evidence_if_a_later_call_was_answered(judged):
    assert judged(ANSWERED_LATER).row(0, named=True)["reason"] == "no_response"


def outage(others: int, *, they_work: bool = False) -> list[dict]:
    """Return failed calls to `a` and as many calls to `b` as given; before, both worked."""
    early, late = (1_700_000_000_000_000_000 + minutes * 60 * 10**9 for minutes in (0, 10))
    calls = [(early, "b", True), *[(late, "b", they_work)] * others, (early, "a", True)]
    calls += [(late, "a", False)] * 5
    events = [opened()]
    for number, (at, tool, works) in enumerate(calls, 1):
        answer = text(number) if works else text(number, "Failed to load items", isError=True)
        # Each call has its own arguments: none is a retry of another.
        events.append(c2s(2 * number - 1, call(number, tool, x=number)) | {"ts_ns": at})
        events.append(s2c(2 * number, answer) | {"ts_ns": at})
    return events


@pytest.mark.parametrize(
    ("case", "is_outage"),
    [
        (CASES.add(*outage(5)), True),
        (CASES.add(*outage(4)), False),
        (CASES.add(*outage(5, they_work=True)), False),
    ],
    ids=["5 others", "4 others", "others that work"],
)
def test_a_vague_failure_is_an_outage_only_if_at_least_five_other_calls_fail_too(
    judged, case, is_outage
):
    last = judged(case).row(-1, named=True)
    assert last["tool"] == "a"
    assert (last["reason"] == "dependency_down") == is_outage


DENIED = "Cannot create document: Directory /srv/out is not writeable"
MISSING = "Document /srv/out/a.docx does not exist"


def talk(*calls: tuple[str, dict[str, object], str | None], program: str = "demo") -> list[dict]:
    """Return calls, each with its tool, arguments, and its error if it fails."""
    messages = []
    for number, (tool, given, said) in enumerate(calls, 1):
        answer = text(number, "[1]") if said is None else text(number, said, isError=True)
        messages += [call(number, tool, **given), answer]
    return [opened(command=[program, "server"]), *exchange(*messages)]


def missing_file(
    first: str, file: str = "/srv/out/a.docx", error: str = MISSING, program: str = "demo"
) -> list[dict]:
    """Return a call with a file that fails with `first`, and then another call."""
    calls = ("t1", {"path": "/srv/out/a.docx"}, first), ("t2", {"path": file}, error)
    return talk(*calls, program=program)


def opens_files(*calls: tuple[str, str | None]) -> list[dict]:
    """Return calls with a file, and their errors if they fail."""
    return talk(*(("open", {"path": path}, said) for path, said in calls))


def reads(other: str, tool: str = "get", **arguments: str) -> list[dict]:
    """Return a call that fails with `other`, and one with these arguments that fails to decode."""
    return talk((tool, {"id": "1"}, other), ("get", arguments, BYTES))


def asks_client(said: str, answer: str = "Method not found") -> list[dict]:
    """Return a call that fails with `said` after its server's request to the client failed."""
    asked = s2c(2, request("s1", "sampling/createMessage")), c2s(3, error("s1", -1, answer))
    return [opened(), c2s(1, call(1)), *asked, s2c(4, text(1, said, isError=True))]


OTHER_FILE = "/srv/out/b.docx", "Document /srv/out/b.docx does not exist"
ZIP = "zip: not a valid zip file"
BYTES = "'utf-8' codec can't decode byte 0xe9 in position 1: invalid start byte"
FAULTS = {
    "a file that the server may not write is missing": (missing_file(DENIED), ["tool", "tool"]),
    "a file that it could not write for another reason": (
        missing_file("Cannot create document: the title is too long"),
        ["caller", "caller"],
    ),
    "another file is missing": (missing_file(DENIED, *OTHER_FILE), ["tool", "caller"]),
    "another object is missing": (
        missing_file(DENIED, error="Sheet Nope not found"),
        ["tool", "caller"],
    ),
    "a file was missing before": (missing_file(MISSING, error=DENIED), ["caller", "tool"]),
    "the host starts the server as a user without rights": (
        missing_file(DENIED, program="/usr/bin/sudo"),
        ["client", "client"],
    ),
    "a program that is called like sudo": (
        missing_file(DENIED, program="sudoku"),
        ["tool", "tool"],
    ),
    "another user, and no rights are missing": (
        missing_file("Command 'npx' not found", program="sudo"),
        ["tool", "caller"],
    ),
    "a file that worked before is damaged": (
        opens_files(("/srv/a.xlsx", None), ("/srv/a.xlsx", ZIP)),
        [None, "tool"],
    ),
    "a file that works later was damaged": (
        opens_files(("/srv/a.xlsx", ZIP), ("/srv/a.xlsx", None)),
        ["tool", None],
    ),
    "another file is damaged": (
        opens_files(("/srv/a.xlsx", None), ("/srv/a.csv", ZIP)),
        [None, "caller"],
    ),
    "a file that worked lacks something": (
        opens_files(("/srv/a.xlsx", None), ("/srv/a.xlsx", "No sheet X")),
        [None, "caller"],
    ),
    "bytes of a tool that asks a service": (reads("HTTP 503", id="7"), ["upstream", "upstream"]),
    "bytes of a tool that connects to a service": (
        reads("connect ECONNREFUSED 127.0.0.1:80", id="7"),
        ["upstream", "upstream"],
    ),
    "bytes without a service": (reads("The list is too long", id="7"), ["caller", "tool"]),
    "bytes of another tool": (reads("HTTP 503", "list", id="7"), ["upstream", "tool"]),
    "bytes of a file of the caller": (reads("HTTP 503", file="a.txt"), ["upstream", "caller"]),
    "a client that lacks a method": (asks_client("Error: Method not found"), ["client", "tool"]),
    "a client that fails": (asks_client("Error: HTTP 503", "HTTP 503"), ["upstream", "upstream"]),
    "an error after that of a client": (asks_client("No sheet X"), ["caller", "tool"]),
}


@pytest.mark.parametrize(
    ("case", "faults"),
    [(CASES.add(*events), faults) for events, faults in FAULTS.values()],
    ids=FAULTS,
)
def test_other_calls_of_a_session_show_whose_fault_a_failure_is(judged, case, faults):
    assert judged(case).get_column("fault").to_list() == faults


LOGGED = """Search failed: Error: getaddrinfo ENOTFOUND api.example.com
    at GetAddrInfoReqWrap.onlookup (node:dns:107:26)"""


def logs(result: str, logged: str = LOGGED, *, structured: bool = False) -> list[dict]:
    """Return a call during which the server writes to stderr, and which has this result."""
    more = {"structuredContent": {"items": json.loads(result)}} if structured else {}
    said = event("stderr", 2, text=logged)
    return [opened(), c2s(1, call(1)), said, s2c(3, text(1, result, **more))]


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        (CASES.add(*logs("[]")), "network"),
        (CASES.add(*logs("")), "network"),
        (CASES.add(*logs("[]", structured=True)), "network"),
        (CASES.add(*logs("[1]")), None),
        (CASES.add(*logs("[1]", structured=True)), None),
        (CASES.add(*logs("[]", "searched api.example.com")), None),
    ],
    ids=["empty", "blank", "structured", "data", "structured data", "no exception"],
)
def test_an_empty_result_with_an_exception_on_stderr_is_a_hidden_error(judged, case, fault):
    [only] = judged(case).rows(named=True)
    assert (only["outcome"], only["fault"]) == ("hidden_error" if fault else "ok", fault)
