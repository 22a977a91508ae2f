"""Exceptions on stderr belong to the calls that raised them, and explain replies that mask them."""

import polars as pl
import pytest

from mcptally.verdict import judge
from mcptally.verdict.stderr_exceptions import LATE_NS, add_stderr_error, find_exceptions

PLAIN = """\
Tool 'add' raised an unexpected exception
Traceback (most recent call last):
  File "/srv/sums.py", line 3, in add
    return rates[currency]
           ~~~~~^^^^^^^^^^
KeyError: 'vat'
INFO: processing request"""
CHAINED = """\
Traceback (most recent call last):
  File "/srv/sums.py", line 3, in add
KeyError: 'vat'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/srv/sdk.py", line 9, in run
sdk.UnexpectedToolError: Error executing tool add"""
# Rich draws boxes as wide as the terminal and wraps the message of the exception below them.
BOXED = """\
                    Error calling tool 'add'
                    ╭─────────── Traceback (most recent call last) ────────────╮
                    │ /srv/sums.py:3 in add                                    │
                    │                                                          │
                    │ ❱ 3 │   return context.rates                             │
                    ╰──────────────────────────────────────────────────────────╯
                    AttributeError: 'Context' object has no attribute
                    'exchange_rates'
                    DEBUG    Sending INFO to client"""
# At 80 columns, beside the columns of a log, rich cuts the title and wraps what follows the box.
NARROW = """\
[11/23/26 08:12:44] ERROR    Tool 'add' raised an unexpected       server.py:455
                             exception
                             ╭─ Traceback (most recent call last─╮
                             │ /srv/sums.py:3 in add             │
                             ╰───────────────────────────────────╯
                             KeyError: 'vat'

                             During handling of the above
                             exception, another exception
                             occurred:

                             ╭─ Traceback (most recent call last─╮
                             │ /srv/rates.py:9 in rate           │
                             ╰───────────────────────────────────╯
                             LookupError: no rate for the usual
                             currency

                             The above exception was the direct
                             cause of the following exception:

                             ╭─ Traceback (most recent call last─╮
                             │ /srv/sdk.py:9 in run              │
                             ╰───────────────────────────────────╯
                             UnexpectedToolError: Error executing
                             tool add"""
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/srv/sums.py", line 3, in add
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/srv/sums.py", line 5, in fetch
    | ConnectionRefusedError: [Errno 111] Connection refused"""
JAVA = """\
Tool add failed
java.lang.IllegalStateException: no rates
\tat Sums.add(Sums.java:3)
Caused by: java.nio.file.NoSuchFileException: /srv/a
\tat Rates.read(Rates.java:9)
\t... 5 more"""
# The error of closing a file has no frames of its own.
WITHOUT_FRAMES = """\
Tool 'add' raised an unexpected exception
OSError: [Errno 28] No space left on device

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/srv/sums.py", line 3, in add
OSError: [Errno 28] No space left on device"""
JAVASCRIPT = """\
[sums] tool add failed: TypeError: Cannot read properties of undefined (reading 'rate')
    at add (/srv/dist/sums.js:3:14)
    at process.processTicksAndRejections (node:internal/process/task_queues:95:5)"""

INSPECTED = """\
Tool add failed: ServiceError: no rates
    at add (/srv/dist/sums.js:3:14)
    at run (/srv/dist/sums.js:9:1) {
  originalError: AxiosError: getaddrinfo ENOTFOUND rates.test
      at get (/srv/dist/rates.js:5:2)"""


def lines(text: str, *, start: int = 0, recording: str = "r") -> pl.DataFrame:
    texts = text.split("\n")
    count = range(start, start + len(texts))
    return pl.DataFrame(
        {"recording": [recording] * len(texts), "seq": count, "ts_ns": count, "text": texts}
    )


@pytest.mark.parametrize(
    ("text", "tool", "exception"),
    [
        (PLAIN, "add", "KeyError: 'vat'"),
        (CHAINED, None, "KeyError: 'vat'"),
        (BOXED, "add", "AttributeError: 'Context' object has no attribute 'exchange_rates'"),
        (NARROW, None, "LookupError: no rate for the usual currency\nKeyError: 'vat'"),
        (
            JAVA,
            "add",
            "java.lang.IllegalStateException: no rates\njava.nio.file.NoSuchFileException: /srv/a",
        ),
        (WITHOUT_FRAMES, None, "OSError: [Errno 28] No space left on device"),
        (JAVASCRIPT, "add", "TypeError: Cannot read properties of undefined (reading 'rate')"),
        (
            INSPECTED,
            "add",
            "ServiceError: no rates\nAxiosError: getaddrinfo ENOTFOUND rates.test",
        ),
    ],
)
def test_the_exception_of_a_stack_trace_is_found(text: str, tool: str | None, exception: str):
    found = find_exceptions(lines(text))
    assert found["exception"].to_list() == [exception]
    assert found["tool"].to_list() == [tool]


@pytest.mark.parametrize("text", [PLAIN, BOXED])
def test_an_exception_without_frames_is_not_the_cause_of_the_trace_before(text: str):
    found = find_exceptions(lines(f"{text}\n{WITHOUT_FRAMES}"))
    assert found["tool"].to_list() == ["add", None]
    assert "OSError" not in found["exception"][0]
    assert found["exception"][1] == "OSError: [Errno 28] No space left on device"


def test_an_exception_group_names_its_cause():
    assert "ConnectionRefusedError" in find_exceptions(lines(GROUP))["exception"].item()


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
