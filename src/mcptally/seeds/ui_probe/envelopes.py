"""Checks the envelope `{success, data, error}` in a tool's answer (UI probe document, 2.1, 2.3).

`violations` also compares the envelope with `isError`, and is applied to the envelopes of all
servers. The original program checks only the types of `success` and `error`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcptally.seeds.violation import Violation

PREFILTER: Final = r'"success\\*"\s*:'
"""Matches the JSON text of every result that contains an envelope."""


def is_envelope(value: Any) -> bool:
    """Return whether a value is an envelope: an object with a member `success`."""
    return isinstance(value, dict) and "success" in value


def violations(
    envelope: Mapping[str, Any], *, is_error: Any, path: str = ""
) -> Iterator[Violation]:
    """Yield the violations in a result's envelope; their codes are rule ids.

    Args:
        envelope: an object with a member `success`.
        is_error: the result's isError; None if absent.
        path: JSON Pointer of the envelope within the result.
    """
    success, error = envelope.get("success"), envelope.get("error")
    if not isinstance(success, bool):
        evidence, message = str(success)[:60], "success is not a boolean"
        yield Violation(path + "/success", message, "envelope.success_type", evidence)
        return
    if success:
        # Many libraries write null or an empty value when there is no error.
        if error not in (None, "", [], {}, False):
            evidence, message = str(error)[:200], "error is present although success is true"
            yield Violation(path + "/error", message, "envelope.error_with_success", evidence)
        if is_error is True:
            message = "success is true although isError is true"
            yield Violation(path + "/success", message, "envelope.success_with_is_error")
        return
    if is_error is not True:
        message = "success is false but isError is not true: a client mistakes this for a success"
        yield Violation(path + "/success", message, "envelope.failure_without_is_error")
    if error in (None, ""):
        message = "success is false but error is missing or empty"
        yield Violation(path + "/error", message, "envelope.failure_without_error")
    elif not isinstance(error, str):
        evidence, message = str(error)[:200], "error is not a string"
        yield Violation(path + "/error", message, "envelope.error_type", evidence)
