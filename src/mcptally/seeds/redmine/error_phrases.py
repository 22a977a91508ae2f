"""Finds error messages that the Redmine document lists in results not marked as errors."""

import re
from collections.abc import Iterator
from typing import Final

from mcptally.seeds.violation import Violation

PREFILTER: Final = "(?i)network error|internal server error|too many requests"
"""Matches every text that `message_without_is_error` reports, and some others."""

MAX_CHARS: Final = 500
"""Maximum length of an error message in characters; longer texts are not examined."""

_MESSAGE: Final = re.compile(
    r"\W{0,4}(?:(?:api|http|input|request|server|fetch|axios)[ _-]?)?"
    r"(?:(?:error|failed|failure|exception)\b[^\w\n]{0,4})?(?:status\s*(?:code)?\s*)?"
    r"(?:[45]\d\d\b[^\w\n]{0,4})?(?:a |an )?"
    r"(network error|internal server error|too many requests)\b"
    r"(?! (?:codes?|messages?|rates?|logs?|types?|handling|pages?|reports?|tracking)\b)",
    re.IGNORECASE,
)


def message_without_is_error(text: str, path: str) -> Iterator[Violation]:
    """Yield a violation if a text is an error message; the result has no isError.

    Args:
        text: the text.
        path: JSON Pointer of the text in the result.
    """
    match = _MESSAGE.match(text) if len(text) <= MAX_CHARS else None
    if match:
        message = f"the text says {match[1].lower()!r} but isError is not true"
        yield Violation(path, message, "content.error_without_is_error", text[:200])
