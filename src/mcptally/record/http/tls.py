"""Implements TLS to the server without I/O."""

import contextlib
import ssl
from pathlib import Path
from typing import Final

from mcptally.errors import UsageError

_RECORD_BYTES: Final = 16 * 1024
"""Maximum plaintext bytes in a TLS record (RFC 8446 section 5.1), and so in one read."""


def trusting(ca_file: Path | None) -> ssl.SSLContext:
    """Return a context that trusts the system's certificate authorities, or those in `ca_file`.

    Raises:
        UsageError: the file has no certificates.
    """
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:
        raise UsageError(
            f"{ca_file}: the file has no usable certificates: {error.strerror or error}"
        ) from error


class TlsStream:
    """The TLS state of one connection, without I/O."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.ended = False

    def handshake(self, data: bytes) -> tuple[bool, bytes]:
        """Process received bytes; return whether the handshake is complete, and the bytes to send.

        Raises:
            ssl.SSLError: the certificate is not trusted, or the peer does not use TLS.
        """
        self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False, self._outgoing.read()
        return True, self._outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        """Decrypt received bytes; set `ended` at the end of the stream."""
        self._incoming.write(data)
        parts: list[bytes] = []
        while not self.ended:
            try:
                part = self._object.read(_RECORD_BYTES)
            except ssl.SSLWantReadError:
                break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                part = b""
            if not part:
                self.ended = True
            parts.append(part)
        return b"".join(parts)

    def close_notify(self) -> bytes:
        """Return the encrypted close_notify alert; decryption continues to work."""
        with contextlib.suppress(ssl.SSLError):
            self._object.unwrap()  # SSLWantReadError: no close_notify from the peer yet
        return self._outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        """Encrypt `data`."""
        self._object.write(data)
        return self._outgoing.read()
