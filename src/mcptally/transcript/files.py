"""Reads transcripts as bytes: decompresses them and splits them into lines.

Lines are not parsed here. Files are streamed, not read into memory as a whole, and only up to the
size that they had when they were opened. Lines longer than `MAX_LINE`, and data beyond what
`DecompressionBudget` allows, are skipped and reported.
"""

import functools
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec
import zstandard

from mcptally.errors import UnreadableError
from mcptally.transcript.digest import new_digest
from mcptally.transcript.discover import describe_error
from mcptally.transcript.remote import is_remote

CHUNK_BYTES: Final = 1 << 20
"""Bytes read at a time. Smaller chunks need more calls, larger chunks cause more cache misses."""

SAMPLE_BYTES: Final = 4 << 20
"""Number of decompressed bytes from which `expansion_ratio` estimates a file's ratio."""

_SAMPLE_STEP: Final = 1 << 12
"""Bytes read at a time by `expansion_ratio`, which needs the position in the compressed file."""

MAX_LINE: Final = 256 << 20
"""Maximum length in bytes of a line that is read. A line takes eleven times its length in memory.
The recorder's size limit for a frame is far lower.
"""

FREE_EXPANSION: Final = 64
"""A compressed file may expand this many times without drawing on `DecompressionBudget`.

Typical recordings expand 5 to 20 times; a thousand recordings of the same call exceed 200."""

UNPACK_BUDGET_BYTES: Final = 512 << 20
"""Total bytes by which a partition's compressed files may exceed `FREE_EXPANSION`."""

_MAX_WINDOW: Final = 1 << 27
"""Largest zstd window (zstd's default limit): bounds memory on hostile input."""

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_FOREIGN_MAGIC: Final = {
    b"PK\x03\x04": "a zip file",
    b"PK\x05\x06": "an empty zip file",
    b"7z\xbc\xaf\x27\x1c": "a 7z file",
    b"\xfd7zXZ\x00": "an xz file",
    b"BZh": "a bzip2 file",
    b"\x04\x22\x4d\x18": "an lz4 file",
    b"Rar!": "a rar file",
    b"PAR1": "a Parquet file",
    b"SQLite format 3\x00": "an SQLite database",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
"""Maps the first bytes of files that users mistake for transcripts to the file's format."""

_ASCII_TEXT: Final = re.compile(rb"[\x20-\x7e\s]*\Z")


class DecompressionBudget(msgspec.Struct):
    """How many bytes several files together may expand to beyond `FREE_EXPANSION`."""

    left: int = UNPACK_BUDGET_BYTES


Digests = dict[tuple[Path, int], str]
"""Maps local files that were read completely, with their sizes, to their digests in hex."""


class Span(msgspec.Struct, frozen=True):
    """A range of whole lines in an uncompressed file."""

    start: int
    """Offset of the first byte."""
    end: int
    """Offset after the last byte."""
    line: int
    """Number of the first line, counted from 1."""
    size: int
    """Size of the whole file in bytes."""
    digest: str
    """Digest of the whole file."""

    @property
    def share(self) -> float:
        """The span's share of the file."""
        return (self.end - self.start) / self.size


class _FileAtOpen(io.FileIO):
    """A regular file that is read up to the size that it had when it was opened.

    Its digest is added to `digests` once the whole file has been read in order. With a `span`, only
    the lines of the span are read.

    Raises:
        OSError: the file cannot be opened.
        UnreadableError: the file is a pipe, a socket or a device.
    """

    def __init__(
        self, path: Path, digests: Digests | None = None, span: Span | None = None
    ) -> None:
        super().__init__(path, "rb", opener=_open_nonblocking)
        about = os.fstat(self.fileno())
        self.start = span.start if span else 0
        self.size = min(about.st_size, span.end) if span else about.st_size
        self._path = path
        self._digests = {} if digests is None else digests
        self._digest = None if digests is None else new_digest()
        self._digested = 0
        if not stat.S_ISREG(about.st_mode):
            self.close()
            raise UnreadableError(f"{path}: is not a regular file")

    def readinto(self, buffer: Any) -> int:
        at = self.tell()
        view = memoryview(buffer)[: max(self.size - at, 0)]
        count = super().readinto(view) or 0
        if self._digest is not None and at == self._digested < self.size:
            self._digest.update(view[:count])
            self._digested += count
            if self._digested == self.size:
                self._digests[self._path, self.size] = self._digest.hexdigest()
        return count

    def readall(self) -> bytes:
        return io.RawIOBase.readall(self)


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file without blocking, even if a pipe has replaced it in the meantime."""
    return os.open(path, flags | os.O_NONBLOCK)


class _ClosingGzipFile(gzip.GzipFile):
    """A gzip reader that also closes the underlying file."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._packed = file

    def close(self) -> None:
        super().close()
        self._packed.close()


def open_stream(path: Path) -> BinaryIO:
    """Return the decompressed bytes of a file; gzip and zstd are recognised by their first bytes.

    Raises:
        UnreadableError: the file cannot be opened, or is a pipe or a device.
    """
    return _open_decompressed(path)[0]


def _open_decompressed(
    path: Path, digests: Digests | None = None, span: Span | None = None
) -> tuple[BinaryIO, int, bytes, Any]:
    """Return the decompressed stream, size (0 if not compressed), first bytes, and file."""
    try:
        raw = path.raw() if is_remote(path) else _FileAtOpen(path, digests, span)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: {describe_error(error)}") from error
    file = cast("BinaryIO", io.BufferedReader(raw, CHUNK_BYTES))
    try:
        head = file.read(16)
        file.seek(span.start if span else 0)
    except OSError as error:
        file.close()
        raise UnreadableError(f"{path}: {describe_error(error)}") from error
    reader = _decompressor(file, head)
    return (file, 0, head, raw) if reader is None else (reader, raw.size, head, raw)


class _CutOffError(EOFError):
    """Raised if compressed data ends early; states how many bytes were not decompressed."""

    def __init__(self, undecoded: int) -> None:
        super().__init__("the compressed data ends early, as if the file was cut off")
        self.undecoded = undecoded


class _ZstdFile(io.RawIOBase):
    """A reader that decompresses zstd frames, and closes the underlying file.

    Zstandard's own `stream_reader` does not detect that a file ends within a frame.

    Raises:
        _CutOffError: the file ends within a frame.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._unpack = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        self._frame: Any = None
        self._next_frame = b""
        self._ready = memoryview(b"")
        self._undecoded = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = self._next_frame or self._file.read(_ZSTD_AT_A_TIME)
            if not data:
                if self._frame is not None:
                    raise _CutOffError(self._undecoded)
                return 0
            self._frame = self._frame or self._unpack.decompressobj()
            self._ready = memoryview(self._frame.decompress(data))
            self._next_frame = b""
            self._undecoded = 0 if self._ready else self._undecoded + len(data)
            if self._frame.eof:
                self._next_frame, self._frame = self._frame.unused_data, None
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def close(self) -> None:
        super().close()
        self._file.close()


_ZSTD_AT_A_TIME: Final = 1 << 11
"""Bytes decompressed at a time: at most 64 MB of output, since 4 bytes may expand to 128 KB."""


def _decompressor(file: BinaryIO, head: bytes) -> BinaryIO | None:
    """Return a decompressing reader that also closes `file`; None if `head` is not compressed."""
    if head.startswith(_GZIP):
        return cast("BinaryIO", _ClosingGzipFile(file))
    if head.startswith(_ZSTD):
        return cast("BinaryIO", io.BufferedReader(_ZstdFile(file), CHUNK_BYTES))
    return None


def expansion_ratio(path: Path) -> float | None:
    """Return the compression ratio at the start of a file; None if it is not compressed.

    The first `SAMPLE_BYTES` decompressed bytes are measured. Long files often compress better than
    their start, so the ratio of the whole file may be higher.

    Raises:
        UnreadableError: the file is a pipe or a device.
        OSError, EOFError, zlib.error, ZstdError: the file cannot be read or is damaged.
    """
    raw = _FileAtOpen(path)
    file = cast("BinaryIO", io.BufferedReader(raw, _SAMPLE_STEP))
    with file:
        head = file.read(16)
        file.seek(0)
        reader = _decompressor(file, head)
        if reader is None:
            return None
        with reader:
            unpacked = 0
            while unpacked < SAMPLE_BYTES and (data := reader.read(CHUNK_BYTES)):
                unpacked += len(data)
            return unpacked / max(1, raw.tell())


def _foreign_format(path: Path, head: bytes) -> str | None:
    """Return the format of a file that cannot be JSON Lines; None for other files."""
    for magic, words in _FOREIGN_MAGIC.items():
        if head.startswith(magic):
            return words
    if head and path.name.endswith((".gz", ".zst")) and not _ASCII_TEXT.match(head):
        return "neither gzip nor zstd, whatever its name says"
    return None


class LineRun(msgspec.Struct, frozen=True, dict=True):
    """Consecutive whole lines of one file."""

    data: bytes
    """The lines, each with its newline; the last line of a file may have no newline."""
    first: int
    """Number of the first line, counted from 1."""
    rest: float = 0.0
    """Approximate share of the file that follows this run."""

    @functools.cached_property
    def ends(self) -> list[int]:
        """The offset in `data` at which each line ends, after its newline."""
        # One `find` per line takes a third of the time of `bytes.count`.
        find, at, ends = self.data.find, 0, []
        while at := find(b"\n", at) + 1:
            ends.append(at)
        if not self.data.endswith(b"\n"):
            ends.append(len(self.data))
        return ends

    @property
    def count(self) -> int:
        """Number of lines."""
        return len(self.ends)

    def line(self, number: int) -> bytes:
        """Return the line with the given number, without its newline."""
        place = number - self.first
        begin = self.ends[place - 1] if place else 0
        return self.data[begin : self.ends[place]].removesuffix(b"\n")


class Damage(msgspec.Struct, frozen=True):
    """A part of a file that could not be read."""

    line: int | None
    """The line at which the damage begins, counted from 1; None for the whole file."""
    rule: str
    """Id of a rule in rules/archive.toml."""
    message: str
    """Describes the damage, without the file's name."""
    rest: float = 1.0
    """Share of the file that was not read because of the damage."""
    skipped: int = 0
    """Number of decompressed bytes that were skipped."""


READ_ERRORS: Final = (OSError, EOFError, zlib.error, zstandard.ZstdError)
"""Exceptions raised when reading a damaged or truncated file."""


def read_lines(
    path: Path,
    *,
    chunk: int = CHUNK_BYTES,
    max_line: int = MAX_LINE,
    room: DecompressionBudget | None = None,
    digests: Digests | None = None,
    span: Span | None = None,
) -> Iterator[LineRun | Damage]:
    """Yield a file's lines in runs of about `chunk` bytes, and a `Damage` per unreadable part.

    Args:
        path: the file. If it cannot be opened, one `Damage` is yielded.
        chunk: bytes to read at a time.
        max_line: longest line in bytes.
        room: the decompression budget, which several files may share.
        digests: collects the digest of a local file that was read completely.
        span: the lines to read; None for all.
    """
    begun = _start_reading(path, digests, span)
    if isinstance(begun, Damage):
        yield begun
        return
    stream, size, raw = begun
    number = span.line if span else 1
    rest: list[bytes] = []
    held = 0
    skipping = False
    with stream:
        for piece in _blocks(stream, size, chunk, room or DecompressionBudget()):
            if isinstance(piece, Damage):
                if rest:
                    yield LineRun(b"".join(rest), number)
                    number += 1
                yield msgspec.structs.replace(piece, line=number, rest=max(piece.rest, _rest(raw)))
                return
            block = piece
            cut = block.rfind(b"\n") + 1
            if skipping and cut:
                begin = block.find(b"\n") + 1
                number += 1
                block, cut, skipping = block[begin:], cut - begin, False
            elif skipping:
                continue
            if not cut:
                if block:
                    rest.append(block)
                held += len(block)
                if held > max_line:
                    yield Damage(
                        number,
                        "archive.line_too_long",
                        f"a line of more than {max_line} bytes was skipped",
                        _rest(raw),
                        held,
                    )
                    rest, held, skipping = [], 0, True
                continue
            data = b"".join([*rest, memoryview(block)[:cut]])
            run = LineRun(data, number, _rest(raw))
            yield run
            number += run.count
            rest = [block[cut:]] if cut < len(block) else []
            held = len(block) - cut
    if rest:
        yield LineRun(b"".join(rest), number)


def read_pieces(path: Path, *, room: DecompressionBudget | None = None) -> Iterator[bytes | Damage]:
    """Yield a file's bytes in pieces of about `CHUNK_BYTES`, for formats not based on lines.

    The limits are the same as in `read_lines`. After damage, the last item is a `Damage` without a
    line number.
    """
    begun = _start_reading(path)
    if isinstance(begun, Damage):
        yield begun
        return
    stream, size, _ = begun
    with stream:
        yield from _blocks(stream, size, CHUNK_BYTES, room or DecompressionBudget())


def _rest(raw: Any) -> float:
    """Return the share of a file, or of its span, that has not been read."""
    start: int = getattr(raw, "start", 0)
    size: int = raw.size - start
    return float(1 - min(raw.tell() - start, size) / size) if size > 0 else 0.0


def _start_reading(
    path: Path, digests: Digests | None = None, span: Span | None = None
) -> tuple[BinaryIO, int, Any] | Damage:
    """Return the decompressed stream, the size (0 if not compressed) and the file; or damage."""
    try:
        stream, size, head, raw = _open_decompressed(path, digests, span)
    except UnreadableError as error:
        return Damage(None, "archive.cannot_read", str(error).removeprefix(f"{path}: "))
    if not size and (what := _foreign_format(path, head)):
        stream.close()
        return Damage(None, "archive.foreign_file", f"is {what}; unpack or convert it first")
    return stream, size, raw


def _blocks(
    stream: BinaryIO, size: int, chunk: int, room: DecompressionBudget
) -> Iterator[bytes | Damage]:
    """Yield a stream's bytes in blocks; if reading stops early, the last item is a `Damage`."""
    # Use `read1`: `read` would drop the data that was decompressed before an error.
    read = cast("Any", stream).read1 if size else stream.read
    allowed = size * FREE_EXPANSION
    while True:
        try:
            block = read(chunk)
        except READ_ERRORS as error:
            rule = "archive.cannot_decompress" if size else "archive.cannot_read"
            rest = error.undecoded / size if isinstance(error, _CutOffError) else 0.0
            yield Damage(None, rule, f"reading stopped: {describe_error(error)}", rest)
            return
        if not block:
            return
        yield block
        if size:
            allowed -= len(block)
            if allowed < 0:
                room.left += allowed
                allowed = 0
                if room.left < 0:
                    yield Damage(
                        None,
                        "archive.unpacks_too_large",
                        f"{size} bytes decompress to more than {FREE_EXPANSION} times their size, "
                        f"and the {UNPACK_BUDGET_BYTES >> 20} MiB beyond that for all files of a "
                        "partition are used up: the rest was not read; decompress the file to read "
                        "all of it",
                    )
                    return
