"""Decodes content codings (gzip, deflate, zstd) for the recorder, in bounded steps.

The proxy forwards the original bytes; only the recording contains decoded JSON. Brotli stays
encoded: the standard library has no decoder for it.
"""

import zlib
from collections.abc import Iterator
from typing import Final, Protocol

import zstandard

_STEP: Final = 256 * 1024
"""Maximum output in bytes per step of a zlib decoder, to bound the memory that a decompression bomb
can use."""

_ZSTD_STEP: Final = 1024
"""Input in bytes per step of the zstd decoder: 4 bytes can expand to a block of 128 KB."""

_ZSTD_WINDOW: Final = 8 << 20
"""Maximum size in bytes of a zstd window that HTTP allows (RFC 9659)."""


class CodingError(Exception):
    """Raised if bytes do not match their coding, or if a coding is not supported."""


class Decoder(Protocol):
    """The interface of a decoder for one content coding."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded bytes of the next part of the input, in bounded steps.

        Raises:
            CodingError: the bytes do not match this coding.
        """

    def end(self) -> None:
        """Check that the input is complete.

        Raises:
            CodingError: the input ended too early.
        """


class _Zlib:
    """Decodes gzip (any number of members), zlib, and the raw deflate that some servers send."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._decoder: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            while data:
                if self._decoder is None:
                    self._decoder = zlib.decompressobj(self._window(data))
                yield self._decoder.decompress(data, _STEP)
                data = self._decoder.unconsumed_tail
                if self._decoder.eof:
                    data = self._decoder.unused_data
                    if not self._gzip:
                        return
                    self._decoder = None
        except zlib.error as error:
            raise CodingError(str(error)) from error

    def _window(self, data: bytes) -> int:
        if self._gzip:
            return zlib.MAX_WBITS | 16
        # "deflate" means zlib (RFC 9110), but some servers send it without the zlib header.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS

    def end(self) -> None:
        if self._decoder is not None and not self._decoder.eof:
            raise CodingError("ended too early")


class _Zstd:
    def __init__(self) -> None:
        self._unpack = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._decoder: zstandard.ZstdDecompressionObj | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            for begin in range(0, len(data), _ZSTD_STEP):
                part = data[begin : begin + _ZSTD_STEP]
                while part:
                    if self._decoder is None:
                        self._decoder = self._unpack.decompressobj()
                    yield self._decoder.decompress(part)
                    part = b""
                    if self._decoder.eof:
                        part, self._decoder = self._decoder.unused_data, None
        except zstandard.ZstdError as error:
            raise CodingError(str(error)) from error

    def end(self) -> None:
        if self._decoder is not None:
            raise CodingError("ended too early")


def decoder(content_encoding: str) -> Decoder | None:
    """Return the decoder for a Content-Encoding value, or None if the content is not encoded.

    Raises:
        CodingError: the coding is not supported, or there are several codings.
    """
    codings = [c.strip().lower() for c in content_encoding.split(",")]
    applied = [c for c in codings if c not in ("", "identity")]
    if not applied:
        return None
    if len(applied) == 1:
        match applied[0].removeprefix("x-"):
            case "gzip":
                return _Zlib(gzip=True)
            case "deflate":
                return _Zlib(gzip=False)
            case "zstd":
                return _Zstd()
    raise CodingError(", ".join(applied))
