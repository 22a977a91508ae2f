"""Short descriptions of network errors: for the `why` field of a recording, and for messages."""

import errno
from typing import Final

INVALID_HOST: Final = (
    "the host name has an empty or too long label, or a character that names cannot have"
)
"""What a `UnicodeError` of the codec `idna` means; its own words differ between Pythons."""


def describe_error(error: OSError | None) -> str:
    """Return a few words that describe `error`; None means an orderly close."""
    if error is None:
        return "closed"
    if (verify_message := getattr(error, "verify_message", None)) is not None:
        return f"certificate not trusted: {verify_message}"
    if isinstance(error, TimeoutError):
        return "timed out"
    if error.errno in (errno.ECONNRESET, errno.EPIPE):
        return "reset"
    return (error.strerror or str(error) or type(error).__name__).lower()
