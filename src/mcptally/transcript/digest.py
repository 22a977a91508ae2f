"""Computes digests of files, by which two states of a file are compared."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blake3 import blake3


def new_digest(data: bytes = b"") -> "blake3":
    """Return a BLAKE3 hash object: BLAKE3 takes at most a third of the time of SHA-256."""
    from blake3 import blake3  # noqa: PLC0415 - mcptally-recorder needs no digests of files

    return blake3(data)
