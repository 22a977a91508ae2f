"""The envelope `{success, data, error}` that tools wrap their answers in (UI probe seed, 2.1, 2.3).

`document` and `program` judge one envelope as the seed's text and its program have it. `judged`
sets it against `isError` and is what findings are made from; it holds for any server that writes
such envelopes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcptally.seeds.violation import Violation, pointer

PREFILTER: Final = r'"success\\*"\s*:'
"""What the JSON text of a result with an envelope contains."""

MESSAGE: Final = re.compile(
    r"\W{0,4}(?:(?:api|http|input|request|server|fetch|axios)[ _-]?)?"
    r"(?:(?:error|failed|failure|exception)\b[^\w\n]{0,4})?(?:status\s*(?:code)?\s*)?"
    r"(?:[45]\d\d\b[^\w\n]{0,4})?(?:a |an )?"
    r"(network error|internal server error|too many requests)\b",
    re.IGNORECASE,
)
"""A reply whose message is one of the three that the Redmine seed names."""

MESSAGE_CHARS: Final = 500
"""Characters beyond which a text is no message."""


def is_envelope(value: Any) -> bool:
    """Whether a value is an envelope at all: an object that says `success`."""
    return isinstance(value, dict) and "success" in value


def document(envelope: Any) -> list[Violation]:
    """What breaks the document: success a boolean, data an object, error text only on failure."""
    return list(_document(envelope))


def _document(envelope: Any) -> Iterator[Violation]:
    if not isinstance(envelope, dict):
        yield Violation("", "the envelope is no object")
        return
    success = envelope.get("success")
    if not isinstance(success, bool):
        yield Violation("/success", "success is no boolean")
        return
    if success and "error" in envelope:
        yield Violation("/error", "error is there although success is true")
    if success and not isinstance(envelope.get("data"), dict):
        yield Violation("/data", "success without data that is an object")
    if not success and not isinstance(envelope.get("error"), str):
        yield Violation("/error", "failure without error that is a string")


def program(envelope: Any) -> list[Violation]:
    """What breaks the program's own type: success a boolean, error a string where it is there."""
    if not isinstance(envelope, dict):
        return [Violation("", "the envelope is no object")]
    found = []
    if not isinstance(envelope.get("success"), bool):
        found.append(Violation("/success", "success is no boolean"))
    if "error" in envelope and not isinstance(envelope["error"], str):
        found.append(Violation("/error", "error is no string"))
    return found


def judged(envelope: Mapping[str, Any], *, is_error: Any, at: str = "") -> Iterator[Violation]:
    """What is wrong with an envelope in a result; the code of a breach is the id of the rule.

    Args:
        envelope: the object that says `success`.
        is_error: the result's isError, None where it is absent.
        at: JSON Pointer of the envelope, in the result.
    """
    success, error = envelope.get("success"), envelope.get("error")
    if not isinstance(success, bool):
        shown = str(success)[:60]
        yield Violation(at + "/success", "success is no boolean", "envelope.success_type", shown)
        return
    if success:
        # Null is how many libraries write "there is none".
        if error not in (None, "", [], {}, False):
            words = "error is there although success is true"
            yield Violation(at + "/error", words, "envelope.error_with_success", str(error)[:200])
        if is_error is True:
            words = "success is true although isError is"
            yield Violation(at + "/success", words, "envelope.success_with_is_error")
        return
    if is_error is not True:
        words = "success is false and isError is not true: a client takes this for a success"
        yield Violation(at + "/success", words, "envelope.failure_without_is_error")
    if error in (None, ""):
        words = "success is false and error says nothing"
        yield Violation(at + "/error", words, "envelope.failure_without_error")
    elif not isinstance(error, str):
        words = "error is no string"
        yield Violation(at + "/error", words, "envelope.error_type", str(error)[:200])


def message_without_is_error(text: str, at: str) -> Iterator[Violation]:
    """A reply that is nothing but the message of an error, and is not marked as one."""
    found = MESSAGE.match(text) if len(text) <= MESSAGE_CHARS else None
    if found:
        words = f"the reply says {found[1].lower()!r} and isError is not true"
        yield Violation(at, words, "content.error_without_is_error", text[:200])


def text_place(block: int) -> str:
    """Where the text of a block is, as a JSON Pointer into the result."""
    return pointer("content", block, "text")
