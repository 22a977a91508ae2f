"""What went wrong between two peers, in the words of the record."""

import errno


def describe_error(error: OSError | None) -> str:
    """One or a few words; None is an end without an error."""
    if error is None:
        return "closed"
    if (verify_message := getattr(error, "verify_message", None)) is not None:
        return f"certificate not trusted: {verify_message}"
    if isinstance(error, TimeoutError):
        return "timed out"
    if error.errno in (errno.ECONNRESET, errno.EPIPE):
        return "reset"
    return (error.strerror or str(error) or type(error).__name__).lower()
