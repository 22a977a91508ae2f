"""The bytes of transcripts, decompressed and cut at lines.

Nothing here knows what a line means. Reading is streaming and bounded: a file is never in memory
whole, is read as long as it was when it was opened, and a line longer than `MAX_LINE`, or what
unpacks to more than `Room` allows, is passed over and reported.
"""

import dataclasses
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import zstandard

from mcptally.errors import UnreadableError
from mcptally.transcript.discover import describe_error
from mcptally.transcript.remote import is_remote

CHUNK_BYTES: Final = 1 << 20
"""Bytes read at a time; measured: smaller costs calls, larger costs cache and second looks."""

SAMPLE_BYTES: Final = 4 << 20
"""Bytes that are unpacked to see how well a file is packed."""

_SAMPLE_STEP: Final = 1 << 12
"""Bytes read at a time where it is asked how far reading came."""

MAX_LINE: Final = 256 << 20
"""Longest line that is read: one costs about eleven times its length in memory (`appetite`). The
recorder's cap on a frame is far below."""

EXPANSION: Final = 64
"""How many times its size a compressed file may always unpack to: recorded ones reach 5 to 20,
those of a server asked the same a thousand times over 200."""

UNPACK_BUDGET_BYTES: Final = 512 << 20
"""Bytes that the compressed files of a partition may unpack to beyond that, all together."""

_MAX_WINDOW: Final = 1 << 27
"""Largest zstd window accepted (zstd's own default limit): bounds memory on hostile input."""

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
"""First bytes of what is taken for a transcript now and then, and is none."""

_ASCII_TEXT: Final = re.compile(rb"[\x20-\x7e\s]*\Z")


@dataclasses.dataclass(slots=True)
class Room:
    """Bytes that compressed files may still unpack to beyond `EXPANSION` times their size."""

    left: int = UNPACK_BUDGET_BYTES


class _FileAtOpen(io.FileIO):
    """A regular file, read no further than it went when it was opened, even if it goes on growing.

    Raises:
        OSError: it cannot be opened.
        UnreadableError: it is a pipe, a socket or a device.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb", opener=_open_nonblocking)
        about = os.fstat(self.fileno())
        self.size = about.st_size
        if not stat.S_ISREG(about.st_mode):
            self.close()
            raise UnreadableError(f"{path}: is no regular file")

    def readinto(self, buffer: Any) -> int:
        return super().readinto(memoryview(buffer)[: max(self.size - self.tell(), 0)]) or 0

    def readall(self) -> bytes:
        return io.RawIOBase.readall(self)


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file; what was one when it was found, and is a pipe by now, keeps nobody waiting."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class _ClosingGzipFile(gzip.GzipFile):
    """A gzip file that closes the file it reads."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._packed = file

    def close(self) -> None:
        super().close()
        self._packed.close()


def open_stream(path: Path) -> BinaryIO:
    """The decompressed bytes of one file; gzip and zstd are told by their first bytes.

    Raises:
        UnreadableError: the file cannot be opened, or is a pipe or a device.
    """
    return _open_decompressed(path)[0]


def _open_decompressed(path: Path) -> tuple[BinaryIO, int, bytes]:
    """The decompressed bytes of a file; its size if it is compressed, else 0; its first bytes."""
    try:
        raw = path.raw() if is_remote(path) else _FileAtOpen(path)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: {describe_error(error)}") from error
    file = cast("BinaryIO", io.BufferedReader(raw, CHUNK_BYTES))
    try:
        head = file.read(16)
        file.seek(0)
    except OSError as error:
        file.close()
        raise UnreadableError(f"{path}: {describe_error(error)}") from error
    reader = _decompressor(file, head)
    return (file, 0, head) if reader is None else (reader, raw.size, head)


def _decompressor(
    file: BinaryIO, head: bytes, at_a_time: int = zstandard.DECOMPRESSION_RECOMMENDED_INPUT_SIZE
) -> BinaryIO | None:
    """What reads a file that begins so, and closes it: what it unpacks to; None if it is plain."""
    if head.startswith(_GZIP):
        return cast("BinaryIO", _ClosingGzipFile(file))
    if head.startswith(_ZSTD):
        unpack = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        reader = unpack.stream_reader(
            file, read_size=at_a_time, read_across_frames=True, closefd=True
        )
        return cast("BinaryIO", reader)
    return None


def expansion(path: Path) -> float | None:
    """How many times its size a file unpacks to, by its first `SAMPLE_BYTES` bytes; None: it is plain.

    What repeats packs the better the longer it goes on: of a long file it is too little.

    Raises:
        UnreadableError: it is a pipe or a device.
        OSError, EOFError, zlib.error, ZstdError: it cannot be read, or is damaged (`BROKEN`).
    """
    raw = _FileAtOpen(path)
    file = cast("BinaryIO", io.BufferedReader(raw, _SAMPLE_STEP))
    with file:
        head = file.read(16)
        file.seek(0)
        reader = _decompressor(file, head, _SAMPLE_STEP)
        if reader is None:
            return None
        with reader:
            unpacked = 0
            while unpacked < SAMPLE_BYTES and (data := reader.read(CHUNK_BYTES)):
                unpacked += len(data)
            return unpacked / max(1, raw.tell())


def _foreign_format(path: Path, head: bytes) -> str | None:
    """What a file is that is certainly no lines of JSON."""
    for magic, words in _FOREIGN_MAGIC.items():
        if head.startswith(magic):
            return words
    if head and path.name.endswith((".gz", ".zst")) and not _ASCII_TEXT.match(head):
        return "neither gzip nor zstd, whatever its name says"
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Lines:
    """A run of whole lines of one file."""

    data: bytes
    """The lines, each with its newline, except a torn last one."""
    first: int
    """Number of the first line, counted from 1."""
    count: int
    """How many lines."""


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """Something in a file that could not be read as lines."""

    line: int | None
    """Where it begins, counted from 1; None: the file as a whole."""
    rule: str
    """The id of the rule that it breaks, of rules/archive.toml."""
    message: str
    """What is wrong, in words that do not name the file."""


BROKEN: Final = (OSError, EOFError, zlib.error, zstandard.ZstdError)
"""What reading a damaged or cut file raises."""


def lines(
    path: Path, *, chunk: int = CHUNK_BYTES, max_line: int = MAX_LINE, room: Room | None = None
) -> Iterator[Lines | Damage]:
    """The file's lines in runs of about `chunk` bytes, and what was damaged between them.

    Args:
        path: the file. One that cannot be opened is damage, too.
        chunk: bytes that are read at a time.
        max_line: longest line in bytes.
        room: what compressed files may unpack to, shared by those read with it.
    """
    begun = _start_reading(path)
    if isinstance(begun, Damage):
        yield begun
        return
    stream, size = begun
    number = 1
    rest: list[bytes] = []
    held = 0
    skipping = False
    with stream:
        for piece in _blocks(stream, size, chunk, room or Room()):
            if isinstance(piece, Damage):
                if rest:
                    yield Lines(b"".join(rest), number, 1)
                    number += 1
                yield dataclasses.replace(piece, line=number)
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
                        f"a line of more than {max_line} bytes was passed over",
                    )
                    rest, held, skipping = [], 0, True
                continue
            rest.append(block[:cut])
            data = b"".join(rest) if len(rest) > 1 else rest[0]
            count = data.count(b"\n")
            yield Lines(data, number, count)
            number += count
            rest = [block[cut:]] if cut < len(block) else []
            held = len(block) - cut
    if rest:
        yield Lines(b"".join(rest), number, 1)


def read_pieces(
    path: Path, *, chunk: int = CHUNK_BYTES, room: Room | None = None
) -> Iterator[bytes | Damage]:
    """The file's bytes, about `chunk` at a time, for documents that are no lines.

    Reads what `lines` would, within the same limits. A `Damage` is the last of them, without its
    place.
    """
    begun = _start_reading(path)
    if isinstance(begun, Damage):
        yield begun
        return
    stream, size = begun
    with stream:
        yield from _blocks(stream, size, chunk, room or Room())


def _start_reading(path: Path) -> tuple[BinaryIO, int] | Damage:
    """The decompressed bytes of a file, and its size if it is compressed, else 0."""
    try:
        stream, size, head = _open_decompressed(path)
    except UnreadableError as error:
        return Damage(None, "archive.cannot_read", str(error).removeprefix(f"{path}: "))
    if not size and (what := _foreign_format(path, head)):
        stream.close()
        return Damage(None, "archive.foreign_file", f"is {what}; unpack or convert it first")
    return stream, size


def _blocks(stream: BinaryIO, size: int, chunk: int, room: Room) -> Iterator[bytes | Damage]:
    """The stream's bytes; where reading ends before they do, what is wrong."""
    # `read` would take what was unpacked before a fault with it.
    read = cast("Any", stream).read1 if size else stream.read
    allowed = size * EXPANSION
    while True:
        try:
            block = read(chunk)
        except BROKEN as error:
            rule = "archive.cannot_decompress" if size else "archive.cannot_read"
            yield Damage(None, rule, f"reading stopped: {describe_error(error)}")
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
                        f"{size} bytes unpack to more than {EXPANSION} times their size and "
                        f"{UNPACK_BUDGET_BYTES >> 20} MiB more for all files that belong together: the rest was "
                        "not read; unpack the file yourself to have it read whole",
                    )
                    return


def text_lines(path: Path, damage: list[str] | None = None) -> Iterator[tuple[int, bytes]]:
    """Line number and line (with its newline) one by one, for tools that rewrite transcripts.

    What is damaged beyond reading is left out, and where and why is added to `damage`.

    Raises:
        UnreadableError: it unpacks to more than is read: the rest would be lost.
    """
    for run in lines(path):
        if isinstance(run, Lines):
            yield from enumerate(io.BytesIO(run.data), start=run.first)
            continue
        where = f"{path}:{run.line}" if run.line else f"{path}"
        if run.rule == "archive.unpacks_too_large":
            raise UnreadableError(f"{where}: {run.message}")
        if damage is not None:
            damage.append(f"{where}: {run.message}")
