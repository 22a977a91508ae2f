"""Transcripts on disk: which files an archive is, and their bytes, decompressed and cut at lines.

Nothing here knows what a line means. Reading is streaming and bounded: a file is never in memory
whole, and a line longer than `MAX_LINE` is passed over and reported.
"""

import dataclasses
import glob
import gzip
import io
import stat
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

import zstandard

from mcptally.errors import UnreadableError
from mcptally.frame import SUFFIXES

CHUNK: Final = 1 << 20
"""Bytes read at a time; measured: smaller costs calls, larger costs cache and second looks."""

MAX_LINE: Final = 512 << 20
"""Longest line that is read. The recorder's cap on a frame is far below."""

_MAX_WINDOW: Final = 1 << 27
"""Largest zstd window accepted (zstd's own default limit): bounds memory on hostile input."""

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


def discover(paths: Iterable[str | Path]) -> list[Path]:
    """The transcript files that `paths` name, sorted, each once.

    A folder gives its `*.jsonl`, `*.jsonl.gz` and `*.jsonl.zst`, recursively, without following
    links out of it; a pattern gives what it matches; a file that is named is always taken.

    Raises:
        UnreadableError: a path does not exist, is no regular file, or nothing was found.
    """
    named = [Path(path) for path in paths]
    found: dict[Path, None] = {}
    for path in named:
        if path.is_dir():
            found.update(dict.fromkeys(_in_folder(path)))
        elif path.exists():
            if not path.is_file():
                raise UnreadableError(f"{path}: is no regular file; name a transcript or a folder")
            found[path] = None
        else:
            matches = sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207
            if not matches:
                raise UnreadableError(f"{path}: no such file or folder")
            for match in matches:
                found.update(dict.fromkeys(_in_folder(match) if match.is_dir() else [match]))
    if not found:
        places = ", ".join(map(str, named)) or "nothing"
        raise UnreadableError(
            f"{places}: no transcripts there (looked for {', '.join('*' + s for s in SUFFIXES)})"
        )
    return sorted(found)


def _in_folder(folder: Path) -> Iterator[Path]:
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        if path.name.endswith(SUFFIXES) and path.is_file():
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                continue
            yield path


def open_stream(path: Path) -> BinaryIO:
    """The decompressed bytes of one file; gzip and zstd are told by their first bytes.

    Raises:
        UnreadableError: the file cannot be opened, or is a pipe or a device.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UnreadableError(f"{path}: is no regular file")
        file = path.open("rb")
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error
    head = file.read(4)
    file.seek(0)
    if head.startswith(_GZIP):
        file.close()
        return cast("BinaryIO", gzip.open(path))
    if head == _ZSTD:
        unpack = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        reader = unpack.stream_reader(file, read_across_frames=True, closefd=True)
        return cast("BinaryIO", reader)
    return file


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

    line: int
    """Where it begins, counted from 1."""
    rule: str
    message: str


def lines(path: Path, *, chunk: int = CHUNK, max_line: int = MAX_LINE) -> Iterator[Lines | Damage]:
    """The file's lines in runs of about `chunk` bytes, and what was damaged between them.

    Raises:
        UnreadableError: the file cannot be opened.
    """
    number = 1
    rest: list[bytes] = []
    held = 0
    skipping = False
    with open_stream(path) as stream:
        # A cut gzip file raises at its end, and `read` would take what it had with it.
        is_gzip = isinstance(cast("object", stream), gzip.GzipFile)
        read = cast("gzip.GzipFile", stream).read1 if is_gzip else stream.read
        while True:
            try:
                block = read(chunk)
            except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
                if rest:
                    yield Lines(b"".join(rest), number, 1)
                    number += 1
                yield Damage(number, "archive.cannot_decompress", f"reading stopped: {error}")
                return
            if not block:
                break
            cut = block.rfind(b"\n") + 1
            if skipping and cut:
                begin = block.find(b"\n") + 1
                number += 1
                block, cut, skipping = block[begin:], cut - begin, False
            elif skipping:
                continue
            if not cut:
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


def text_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Line number and line (with its newline) one by one, for tools that rewrite transcripts."""
    for run in lines(path):
        if isinstance(run, Lines):
            yield from enumerate(io.BytesIO(run.data), start=run.first)
