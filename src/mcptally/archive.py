"""Transcripts on disk: which files an archive is, and their bytes, decompressed and cut at lines.

Nothing here knows what a line means. Reading is streaming and bounded: a file is never in memory
whole, is read as long as it was when it was opened, and a line longer than `MAX_LINE`, or what
unpacks to more than `Room` allows, is passed over and reported.
"""

import dataclasses
import glob
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import zstandard

from mcptally.errors import UnreadableError
from mcptally.frame import SUFFIXES
from mcptally.remote import is_remote

CHUNK: Final = 1 << 20
"""Bytes read at a time; measured: smaller costs calls, larger costs cache and second looks."""

SAMPLE: Final = 4 << 20
"""Bytes that are unpacked to see how well a file is packed."""

_STEP: Final = 1 << 12
"""Bytes read at a time where it is asked how far reading came."""

MAX_LINE: Final = 256 << 20
"""Longest line that is read: one costs about eleven times its length in memory (`appetite`). The
recorder's cap on a frame is far below."""

EXPANSION: Final = 64
"""How many times its size a compressed file may always unpack to: recorded ones reach 5 to 20,
those of a server asked the same a thousand times over 200."""

ROOM: Final = 512 << 20
"""Bytes that the compressed files of a partition may unpack to beyond that, all together."""

_MAX_WINDOW: Final = 1 << 27
"""Largest zstd window accepted (zstd's own default limit): bounds memory on hostile input."""

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_FOREIGN: Final = {
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

_TEXT: Final = re.compile(rb"[\x20-\x7e\s]*\Z")


@dataclasses.dataclass(frozen=True, slots=True)
class PassedOver:
    """Something that a folder or a pattern leads to, and that is not read."""

    name: str
    """Its path, as far as it is UTF-8."""
    why: str
    """Why it is not, in words."""


@dataclasses.dataclass(slots=True)
class Room:
    """Bytes that compressed files may still unpack to beyond `EXPANSION` times their size."""

    left: int = ROOM


def discover(
    paths: Iterable[str | Path], passed_over: Callable[[PassedOver], Any] = lambda _: None
) -> list[Path]:
    """The transcript files that `paths` name, sorted, each once.

    A folder gives its `*.jsonl`, `*.jsonl.gz` and `*.jsonl.zst`, recursively, without following
    links out of it; a pattern gives what it matches; a file that is named is always taken.

    Args:
        paths: files, folders and patterns.
        passed_over: is told what has such a name, or is matched, and is not read, and why.

    Raises:
        UnreadableError: a path does not exist, is no regular file or no pattern, cannot be listed,
            has a name that is not UTF-8, or nothing was found.
    """
    named = [Path(path) for path in paths]
    found: dict[Path, None] = {}
    out: list[PassedOver] = []
    for path in named:
        if _is(path, Path.is_dir):
            found.update(dict.fromkeys(files_below(path, out)))
        elif _is(path, Path.exists):
            if not path.is_file():
                raise UnreadableError(f"{path}: is no regular file; name a transcript or a folder")
            if not _is_text(path):
                raise UnreadableError(f"{_shown(path)}: {_NO_TEXT}")
            found[path] = None
        else:
            matches = sorted(_matches(path))
            if not matches:
                raise UnreadableError(f"{path}: no such file or folder")
            for match in matches:
                if match.is_dir():
                    found.update(dict.fromkeys(files_below(match, out)))
                elif _is_text(match):
                    found[match] = None
                else:
                    out.append(PassedOver(_shown(match), _NO_TEXT))
    for each in out:
        passed_over(each)
    if not found:
        places = ", ".join(map(str, named)) or "nothing"
        seen = f"; passed over: {out[0].name}: {out[0].why}" if out else ""
        raise UnreadableError(
            f"{places}: no transcripts there "
            f"(looked for {', '.join('*' + s for s in SUFFIXES)}){seen}"
        )
    return sorted(found)


def _is(path: Path, what: Callable[[Path], bool]) -> bool:
    """What a path is; one that no system takes (too long, a NUL in it) is nothing."""
    try:
        return what(path)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: {_why(error)}") from error


def _matches(pattern: Path) -> Iterator[Path]:
    """What a pattern matches. `**` goes through no links to folders: they may lead in circles."""
    parts = pattern.parts
    fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    if fixed < len(parts):
        try:
            yield from Path(*parts[:fixed]).glob(str(Path(*parts[fixed:])))
        except ValueError as error:  # `**` beside other characters, for one
            raise UnreadableError(f"{pattern}: {error}") from error


def files_below(
    folder: Path, out: list[PassedOver], suffixes: tuple[str, ...] = SUFFIXES
) -> Iterator[Path]:
    """The files of a folder and those below whose names end so, without following links out of it.

    `out` is given what has such a name and is left out.

    Raises:
        UnreadableError: a folder cannot be listed.
    """
    # However deep: a loop, not a recursion.
    root = folder.resolve()
    todo = [folder]
    while todo:
        here = todo.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            raise UnreadableError(f"{here}: cannot be listed: {error.strerror}") from error
        for entry in entries:
            path = here / entry.name
            if entry.is_dir(follow_symlinks=False):
                todo.append(path)
            elif entry.is_symlink() and not _within(path, root):
                if entry.name.endswith(suffixes) or _leads_to_folder(entry):
                    out.append(
                        PassedOver(_shown(path), "a link out of the folder; name it as well")
                    )
            elif entry.name.endswith(suffixes):
                if not path.is_file():
                    out.append(PassedOver(_shown(path), "no regular file"))
                elif not _is_text(path):
                    out.append(PassedOver(_shown(path), _NO_TEXT))
                elif not entry.is_symlink() or not path.resolve().name.endswith(suffixes):
                    yield path  # (what another link within leads to is found by its own name)


_NO_TEXT: Final = "its name is not UTF-8, and no table can hold it; rename it"


def _is_text(path: Path) -> bool:
    return _shown(path) == str(path)


def _shown(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def _within(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a link that leads to itself
        return True


def _leads_to_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


class _AsItWas(io.FileIO):
    """A regular file, read no further than it went when it was opened, even if it goes on growing.

    Raises:
        OSError: it cannot be opened.
        UnreadableError: it is a pipe, a socket or a device.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb", opener=_without_waiting)
        about = os.fstat(self.fileno())
        self.size = about.st_size
        if not stat.S_ISREG(about.st_mode):
            self.close()
            raise UnreadableError(f"{path}: is no regular file")

    def readinto(self, buffer: Any) -> int:
        return super().readinto(memoryview(buffer)[: max(self.size - self.tell(), 0)]) or 0

    def readall(self) -> bytes:
        return io.RawIOBase.readall(self)


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; what was one when it was found, and is a pipe by now, keeps nobody waiting."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class _Gzip(gzip.GzipFile):
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
    return _opened(path)[0]


def _opened(path: Path) -> tuple[BinaryIO, int, bytes]:
    """The decompressed bytes of a file; its size if it is compressed, else 0; its first bytes."""
    try:
        raw = path.raw() if is_remote(path) else _AsItWas(path)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: {_why(error)}") from error
    file = cast("BinaryIO", io.BufferedReader(raw, CHUNK))
    try:
        head = file.read(16)
        file.seek(0)
    except OSError as error:
        file.close()
        raise UnreadableError(f"{path}: {_why(error)}") from error
    reader = _unpacking(file, head)
    return (file, 0, head) if reader is None else (reader, raw.size, head)


def _unpacking(
    file: BinaryIO, head: bytes, at_a_time: int = zstandard.DECOMPRESSION_RECOMMENDED_INPUT_SIZE
) -> BinaryIO | None:
    """What reads a file that begins so, and closes it: what it unpacks to; None if it is plain."""
    if head.startswith(_GZIP):
        return cast("BinaryIO", _Gzip(file))
    if head.startswith(_ZSTD):
        unpack = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        reader = unpack.stream_reader(
            file, read_size=at_a_time, read_across_frames=True, closefd=True
        )
        return cast("BinaryIO", reader)
    return None


def expansion(path: Path) -> float | None:
    """How many times its size a file unpacks to, by its first `SAMPLE` bytes; None: it is plain.

    What repeats packs the better the longer it goes on: of a long file it is too little.

    Raises:
        UnreadableError: it is a pipe or a device.
        OSError, EOFError, zlib.error, ZstdError: it cannot be read, or is damaged (`BROKEN`).
    """
    raw = _AsItWas(path)
    file = cast("BinaryIO", io.BufferedReader(raw, _STEP))
    with file:
        head = file.read(16)
        file.seek(0)
        reader = _unpacking(file, head, _STEP)
        if reader is None:
            return None
        with reader:
            unpacked = 0
            while unpacked < SAMPLE and (data := reader.read(CHUNK)):
                unpacked += len(data)
            return unpacked / max(1, raw.tell())


def _why(error: Exception) -> str:
    """An error of the system in words, without the file's name."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _foreign(path: Path, head: bytes) -> str | None:
    """What a file is that is certainly no lines of JSON."""
    for magic, words in _FOREIGN.items():
        if head.startswith(magic):
            return words
    if head and path.name.endswith((".gz", ".zst")) and not _TEXT.match(head):
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
    path: Path, *, chunk: int = CHUNK, max_line: int = MAX_LINE, room: Room | None = None
) -> Iterator[Lines | Damage]:
    """The file's lines in runs of about `chunk` bytes, and what was damaged between them.

    Args:
        path: the file. One that cannot be opened is damage, too.
        chunk: bytes that are read at a time.
        max_line: longest line in bytes.
        room: what compressed files may unpack to, shared by those read with it.
    """
    begun = _begun(path)
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


def pieces(path: Path, *, chunk: int = CHUNK, room: Room | None = None) -> Iterator[bytes | Damage]:
    """The file's bytes, about `chunk` at a time, for documents that are no lines.

    Reads what `lines` would, within the same limits. A `Damage` is the last of them, without its
    place.
    """
    begun = _begun(path)
    if isinstance(begun, Damage):
        yield begun
        return
    stream, size = begun
    with stream:
        yield from _blocks(stream, size, chunk, room or Room())


def _begun(path: Path) -> tuple[BinaryIO, int] | Damage:
    """The decompressed bytes of a file, and its size if it is compressed, else 0."""
    try:
        stream, size, head = _opened(path)
    except UnreadableError as error:
        return Damage(None, "archive.cannot_read", str(error).removeprefix(f"{path}: "))
    if not size and (what := _foreign(path, head)):
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
            yield Damage(None, rule, f"reading stopped: {_why(error)}")
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
                        f"{ROOM >> 20} MiB more for all files that belong together: the rest was "
                        "not read; unpack the file yourself to have it read whole",
                    )
                    return


def text_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Line number and line (with its newline) one by one, for tools that rewrite transcripts.

    What is damaged beyond reading is left out.

    Raises:
        UnreadableError: it unpacks to more than is read: the rest would be lost.
    """
    for run in lines(path):
        if isinstance(run, Lines):
            yield from enumerate(io.BytesIO(run.data), start=run.first)
        elif run.rule == "archive.unpacks_too_large":
            raise UnreadableError(f"{path}:{run.line}: {run.message}")
