"""The verdict uses how a recording ended and how many concurrent calls failed."""

from pathlib import Path

import polars as pl
import pytest

import mcptally as mt
from tests import sql_over_tables
from tests.transcripts import c2s, call, event, opened, s2c, text, write


def judged(tmp_path: Path, *events) -> pl.DataFrame:
    mt.score([write(tmp_path / "x.jsonl", events)], out=tmp_path / "store")
    query = "SELECT seq, outcome, verdict, reason, rule FROM calls ORDER BY seq"
    return sql_over_tables.ask(tmp_path / "store", query)


ENDS = {
    "the server crashed": ({"exit_code": 1, "signal": None}, "tool_failure"),
    "the server aborted": ({"exit_code": None, "signal": "SIGABRT"}, "tool_failure"),
    "the server was killed": ({"exit_code": None, "signal": "SIGKILL"}, "infrastructure"),
    "the server was killed, by number": ({"exit_code": None, "signal": 9}, "infrastructure"),
}


@pytest.mark.parametrize(("end", "verdict"), ENDS.values(), ids=ENDS)
def test_the_end_of_the_server_decides_the_verdict_on_calls_in_flight(tmp_path, end, verdict):
    rows = judged(
        tmp_path,
        opened(),
        c2s(1, call(1)),
        s2c(2, text(1)),
        c2s(3, call(2)),
        event("close", 4, reason="server_exited", **end),
    )
    assert rows.row(1, named=True)["verdict"] == verdict


def test_the_end_of_the_server_is_no_evidence_if_a_later_call_was_answered(tmp_path):
    rows = judged(
        tmp_path,
        opened(),
        c2s(1, call(1)),
        c2s(3, call(2)),
        s2c(4, text(2)),
        event("close", 5, reason="server_exited", exit_code=1, signal=None),
    )
    assert rows.row(0, named=True)["reason"] == "no_response"


def outage(*, others_fail: bool) -> list[dict]:
    """Calls of three tools that work; ten minutes later `a` fails, and maybe the others too."""
    vague = "Failed to load items"
    events, seq = [opened()], 0
    for minute, fails in ((0, False), (10, True)):
        for tool in ("a", "b", "c") * 4:
            seq += 2
            at = 1_700_000_000_000_000_000 + minute * 60 * 10**9 + seq * 10**6
            broken = fails and (others_fail or tool == "a")
            answer = text(seq, vague, isError=True) if broken else text(seq)
            events.append(c2s(seq - 1, call(seq, tool)) | {"ts_ns": at})
            events.append(s2c(seq, answer) | {"ts_ns": at + 1})
    return events


@pytest.mark.parametrize("others_fail", [True, False])
def test_a_vague_failure_is_an_outage_only_if_all_other_calls_fail_too(tmp_path, others_fail):
    rows = judged(tmp_path, *outage(others_fail=others_fail))
    failed = rows.filter(outcome="tool_error")
    assert set(failed["reason"] == "dependency_down") == {others_fail}


@pytest.mark.parametrize(("others", "enough"), [(4, False), (5, True)])
def test_an_outage_needs_at_least_five_other_calls(tmp_path, others, enough):
    early, late = (1_700_000_000_000_000_000 + minutes * 60 * 10**9 for minutes in (0, 10))
    calls = [(early, "b", True), *[(late, "b", False)] * others, (early, "a", True)]
    calls += [(late, "a", False)]
    events = [opened()]
    for number, (at, tool, works) in enumerate(calls, 1):
        answer = text(number) if works else text(number, "Failed to load items", isError=True)
        # Each call has its own arguments: none is a retry of another.
        events.append(c2s(2 * number - 1, call(number, tool, x=number)) | {"ts_ns": at})
        events.append(s2c(2 * number, answer) | {"ts_ns": at})
    rows = judged(tmp_path, *events).filter(seq=2 * len(calls) - 1)
    assert (rows["reason"][0] == "dependency_down") == enough
