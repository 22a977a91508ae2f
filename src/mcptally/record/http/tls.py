"""TLS to the server, without input or output; imported only where a URL asks for it."""

import contextlib
import ssl
from pathlib import Path
from typing import Final

from mcptally.errors import UsageError

_RECORD_BYTES: Final = 16 * 1024
"""Longest plaintext of one TLS record (RFC 8446 section 5.1): one read returns no more."""


def context(ca_file: Path | None) -> ssl.SSLContext:
    """What is trusted: the system's authorities, or those in the file instead.

    Raises:
        UsageError: there are no certificates in the file.
    """
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:
        raise UsageError(f"{ca_file}: no certificates there: {error.strerror or error}") from error


class TlsStream:
    """The TLS side of a wire, without input or output of its own."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.ended = False

    def handshake(self, data: bytes) -> tuple[bool, bytes]:
        """Whether both sides have agreed on keys, and what to send; `data` is what came.

        Raises:
            ssl.SSLError: the certificate is not to be trusted, or the peer speaks no TLS.
        """
        self._incoming.write(data)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False, self._outgoing.read()
        return True, self._outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        """What encrypted bytes say."""
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
        """The encrypted form of the end of what is sent; reading goes on."""
        with contextlib.suppress(ssl.SSLError):
            self._object.unwrap()  # raises SSLWantReadError: the peer's own end has not come
        return self._outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        """The encrypted form of `data`."""
        self._object.write(data)
        return self._outgoing.read()
