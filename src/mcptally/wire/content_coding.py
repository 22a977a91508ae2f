"""Content codings, undone on the recorder's copy: gzip, deflate and zstd, streaming and bounded.

What passes through the proxy is never decoded; this only lets the recording hold JSON where the
wire held compressed JSON. Brotli has no decoder in the standard library, so it stays undecoded.
"""

import zlib
from collections.abc import Iterator
from typing import Final, Protocol

import zstandard

_STEP: Final = 256 * 1024
"""Most bytes that one step of a zlib decoder gives: bounds what a decompression bomb can take."""

_ZSTD_STEP: Final = 1024
"""Input bytes a step of the zstd decoder: a block of 128 KB can hide in 4 bytes."""

_ZSTD_WINDOW: Final = 8 << 20
"""Largest zstd window, as RFC 9659 limits it for HTTP."""


class CodingError(Exception):
    """The bytes are not what their coding says, or the coding is one we cannot undo."""


class Decoder(Protocol):
    """Undoes one content coding."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The decoded bytes, in bounded steps.

        Raises:
            CodingError: the bytes are not of this coding.
        """

    def end(self) -> None:
        """Say that the input is over.

        Raises:
            CodingError: it ended too early.
        """


class _Zlib:
    """Gzip (with any number of members), zlib, and the raw deflate that some servers send."""

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
        # "deflate" means zlib (RFC 9110), but a zlib header is optional in the wild.
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
    """The decoder for a Content-Encoding value; None when there is nothing to undo.

    Raises:
        CodingError: the coding, or the number of codings, is none that we undo.
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
