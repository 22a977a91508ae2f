"""The envelope `{success, data, error}` around a tool's answer (UI probe document, 2.1 and 2.3).

`document` and `program` check an envelope in the two interpretations. `violations` also compares it
with `isError`; findings are made from it, for every server that writes such envelopes.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcptally.seeds.violation import Violation

PREFILTER: Final = r'"success\\*"\s*:'
"""Matches the JSON text of every result with an envelope."""


def is_envelope(value: Any) -> bool:
    """Whether a value is an envelope: an object with a member `success`."""
    return isinstance(value, dict) and "success" in value


def document(envelope: Any) -> list[Violation]:
    """The violations of the document.

    `success` is a boolean, `data` an object on success, `error` a string on failure and only then.
    """
    return list(_document(envelope))


def _document(envelope: Any) -> Iterator[Violation]:
    if not isinstance(envelope, dict):
        yield Violation("", "the envelope is not an object")
        return
    success = envelope.get("success")
    if not isinstance(success, bool):
        yield Violation("/success", "success is not a boolean")
        return
    if success and "error" in envelope:
        yield Violation("/error", "error is present although success is true")
    if success and not isinstance(envelope.get("data"), dict):
        yield Violation("/data", "success is true but data is not an object")
    if not success and not isinstance(envelope.get("error"), str):
        yield Violation("/error", "success is false but error is not a string")


def program(envelope: Any) -> list[Violation]:
    """The violations of the program's type: `success` a boolean, `error` a string if present."""
    if not isinstance(envelope, dict):
        return [Violation("", "the envelope is not an object")]
    found = []
    if not isinstance(envelope.get("success"), bool):
        found.append(Violation("/success", "success is not a boolean"))
    if "error" in envelope and not isinstance(envelope["error"], str):
        found.append(Violation("/error", "error is not a string"))
    return found


def violations(
    envelope: Mapping[str, Any], *, is_error: Any, path: str = ""
) -> Iterator[Violation]:
    """The violations of an envelope in a result; their codes are rule ids.

    Args:
        envelope: an object with a member `success`.
        is_error: the result's isError; None if it is absent.
        path: JSON Pointer of the envelope within the result.
    """
    success, error = envelope.get("success"), envelope.get("error")
    if not isinstance(success, bool):
        evidence, message = str(success)[:60], "success is not a boolean"
        yield Violation(path + "/success", message, "envelope.success_type", evidence)
        return
    if success:
        # Many libraries write null or an empty value for a missing error.
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
