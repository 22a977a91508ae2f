"""Exceptions on stderr belong to the calls that raised them, and explain replies that mask them."""

import tomllib
from pathlib import Path

import polars as pl
import pytest

from mcptally.verdict import judge
from mcptally.verdict.stderr_exceptions import LATE_NS, add_stderr_error, find_exceptions

TRACES = tomllib.loads(Path(__file__).with_name("stderr_traces.toml").read_text(encoding="utf-8"))
PLAIN, CHAINED, BOXED = (TRACES[name]["text"] for name in ("plain", "chained", "boxed"))


def lines(text: str, *, start: int = 0, recording: str = "r") -> pl.DataFrame:
    texts = text.split("\n")
    count = range(start, start + len(texts))
    return pl.DataFrame(
        {"recording": [recording] * len(texts), "seq": count, "ts_ns": count, "text": texts}
    )


@pytest.mark.parametrize("name", [name for name, trace in TRACES.items() if "exception" in trace])
def test_the_exception_of_a_stack_trace_is_found(name: str):
    trace = TRACES[name]
    found = find_exceptions(lines(trace["text"]))
    assert found["exception"].to_list() == [trace["exception"]]
    assert found["tool"].to_list() == [trace.get("tool")]


@pytest.mark.parametrize("text", [PLAIN, BOXED])
def test_an_exception_without_frames_is_not_the_cause_of_the_trace_before(text: str):
    found = find_exceptions(lines(f"{text}\n{TRACES['without_frames']['text']}"))
    assert found["tool"].to_list() == ["add", None]
    assert "OSError" not in found["exception"][0]
    assert found["exception"][1] == "OSError: [Errno 28] No space left on device"


def test_an_exception_group_names_its_cause():
    found = find_exceptions(lines(TRACES["group"]["text"]))
    assert "ConnectionRefusedError" in found["exception"].item()


def test_exceptions_that_were_written_together_keep_their_order():
    shards = [f"KeyError: 'shard {number}'" for number in range(40)]
    head = 'Traceback (most recent call last):\n  File "/srv/sums.py", line 3, in add'
    at_once = lines("\n".join(f"{head}\n{each}" for each in shards)).with_columns(ts_ns=5)
    assert find_exceptions(at_once)["exception"].to_list() == shards


def test_output_without_a_stack_trace_has_no_exception():
    assert find_exceptions(lines("ValueError: no\nat the end")).is_empty()


def calls(*replies: tuple[str, int, int, str]) -> pl.DataFrame:
    """Calls with tool, time of request and reply, and outcome."""
    schema = ["tool", "ts_ns", "reply_ns", "outcome"]
    frame = pl.DataFrame(replies, schema=schema, orient="row")
    return frame.with_columns(recording=pl.lit("r"))


def owners(of_calls: pl.DataFrame, text: str, start: int) -> list[str | None]:
    return add_stderr_error(of_calls, lines(text, start=start))["stderr_error"].to_list()


def test_an_exception_belongs_to_the_next_failed_reply_of_the_tool_that_its_log_names():
    of_calls = calls(
        ("other", 0, 60, "tool_error"), ("add", 1, 70, "tool_error"), ("add", 65, 90, "tool_error")
    )
    assert owners(of_calls, PLAIN, 40) == [None, "KeyError: 'vat'", None]


def test_an_exception_that_is_logged_late_belongs_to_the_reply_before():
    of_calls = calls(("add", 0, 10, "tool_error"), ("add", 50, 60, "tool_error"))
    assert owners(of_calls, PLAIN, 20) == ["KeyError: 'vat'", None]
    assert owners(of_calls[:1], PLAIN, 20 + LATE_NS) == [None]


def test_a_failed_call_is_more_likely_the_owner_than_one_that_worked():
    of_calls = calls(("other", 0, 60, "ok"), ("another", 1, 70, "tool_error"))
    assert owners(of_calls, CHAINED, 40) == [None, "KeyError: 'vat'"]


def verdict(text: str, exception: str | None, arguments: str | None = None) -> str:
    call = {"outcome": "tool_error", "error_text": text, "stderr_error": exception}
    judged = judge(pl.DataFrame([call | {"arguments": arguments}], infer_schema_length=None))
    return judged["verdict"].item()


@pytest.mark.parametrize(
    ("exception", "expected"),
    [
        ("KeyError: 'vat'", "tool_failure"),
        ("AttributeError: 'NoneType' object has no attribute 'x'", "tool_failure"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "infrastructure"),
        ("ValueError: unknown voucher", "business"),
        ("ValueError: too many values to unpack (expected 2)", "tool_failure"),
        (None, "ambiguous"),
    ],
)
def test_the_exception_on_stderr_decides_a_masked_reply(exception: str | None, expected: str):
    assert verdict("Error executing tool add", exception) == expected
    assert verdict('An unexpected error occurred during "Failed to add".', exception) == expected
    assert verdict("Tool failed: Failed to add; see server log", exception) == expected
    assert verdict("Failed to add. Please check the logs for details.", exception) == expected


def test_the_exception_decides_a_reply_that_refers_to_a_log():
    assert (
        verdict("Unexpected error in add; see server log", "ValueError: unknown voucher")
        == "business"
    )


def test_an_exception_that_the_reply_does_not_explain_changes_nothing():
    text = "Customer C-9 was not found"
    assert verdict(text, "KeyError: 'cache'") == verdict(text, None) == "business"
