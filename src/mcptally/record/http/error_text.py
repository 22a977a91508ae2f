"""Describes network errors briefly, for the `why` field of a recording and for messages."""

import errno
import os
from typing import Final

INVALID_HOST: Final = (
    "the host name has an empty or too long label, or a character that names cannot have"
)
"""Meaning of a `UnicodeError` from the codec `idna`; its message varies by Python version."""


def describe_error(error: OSError | None) -> str:
    """Describe an error in a few words; None means that the connection was closed in order."""
    if error is None:
        return "closed"
    if (verify_message := getattr(error, "verify_message", None)) is not None:
        return f"certificate not trusted: {verify_message}"
    if isinstance(error, TimeoutError):
        return "timed out"
    if error.errno in (errno.ECONNRESET, errno.EPIPE):
        return "reset"
    text = error.strerror or str(error) or type(error).__name__
    if error.errno is not None and text.startswith("Connect call failed"):  # asyncio's text
        text = os.strerror(error.errno)
    return text.lower()
