from typing import Any

import polars as pl

from mcptally.pipeline.failure_kinds import failure_kind
from mcptally.tables.calls import Calls

FAILED = {
    "dir": "c2s",
    "server": "s",
    "method": "tools/call",
    "tool": "t",
    "outcome": "tool_error",
    "template": "no such file: <path>",
    "verdict": "business",
    "certainty": 98.0,
}


def kinds(*calls: dict[str, Any]) -> list[str | None]:
    return failure_kind(Calls.frame(pl.DataFrame([FAILED | call for call in calls]))).to_list()


def test_failed_calls_that_differ_only_in_session_text_and_arguments_are_of_one_kind():
    first, second = kinds(
        {"session": "a", "error_text": "no such file: /a", "arguments": '{"path":"/a"}'},
        {"session": "b", "error_text": "no such file: /b", "arguments": '{"path":"/b"}'},
    )
    assert first == second
    assert first is not None


def test_another_tool_message_verdict_or_a_missing_value_makes_another_kind():
    differing = {
        "server": "s2",
        "method": "prompts/get",
        "tool": None,
        "template": None,
        "outcome": "hidden_error",
        "verdict": "ambiguous",
        "reason": "masked",
        "fault": "caller",
        "rule": "r",
        "certainty": 97.0,
        "hidden_certainty": 90.0,
        "input_schema_state": "invalid",
        "input_schema_error": "e",
        "input_schema_path": "/p",
    }
    found = kinds({}, *({name: value} for name, value in differing.items()))
    assert None not in found
    assert len(set(found)) == 1 + len(differing)


def test_calls_that_did_not_fail_and_requests_of_servers_have_no_kind():
    found = kinds({"outcome": "ok"}, {}, {"outcome": "cancelled"}, {"dir": "s2c"})
    assert [kind is None for kind in found] == [True, False, True, True]


def test_a_kind_does_not_depend_on_the_other_calls():
    alone = kinds({})
    assert kinds({"outcome": "ok"}, {"tool": "u"}, {})[2:] == alone
