"""Reads members of a zip archive; zstd (method 93) is read with `zstandard`.

`zipfile` supports zstd since Python 3.14. The limits are those of `transcript.files`.
"""

import copy
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import zstandard

from mcptally.errors import UnreadableError
from mcptally.importers.source import Source
from mcptally.transcript.discover import describe_error
from mcptally.transcript.files import (
    CHUNK_BYTES,
    FREE_EXPANSION,
    MAX_LINE,
    READ_ERRORS,
    open_stream,
)

_ZSTD: Final = 93
_MAX_WINDOW: Final = 1 << 27
_ERRORS: Final = (
    *READ_ERRORS,
    zipfile.BadZipFile,
    struct.error,
    ValueError,
    NotImplementedError,  # an unknown method
    RuntimeError,  # an encrypted member
)


MAGIC: Final = b"PK\x03\x04"
"""First bytes of a zip archive with members."""


def is_zip(path: Path) -> bool:
    """Whether a file is a zip archive; False if it cannot be read."""
    try:
        with open_stream(path) as file:
            return file.read(len(MAGIC)) == MAGIC
    except (*READ_ERRORS, UnreadableError):
        return False


def member_names(path: Path) -> list[str]:
    """Names of the members of an archive; none if it is damaged."""
    try:
        with open_stream(path) as file, zipfile.ZipFile(file) as archive:
            return archive.namelist()
    except (*_ERRORS, UnreadableError):
        return []


def members(source: Source, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the wanted members; damaged ones are counted as unused.

    Unpacking stops if the archive expands to more than the budget of the import allows.
    """
    tally = source.tally
    try:
        with open_stream(source.path) as file, zipfile.ZipFile(file) as archive:
            entries = [entry for entry in archive.infolist() if wanted(entry.filename)]
            packed = source.path.stat().st_size
            free = packed * FREE_EXPANSION
            for number, entry in enumerate(entries, 1):
                limit = min(MAX_LINE, free + max(source.room.left, 0))
                try:
                    data = _content(archive, entry, limit)
                except _ERRORS as error:
                    tally.seen += 1
                    tally.skip(number, f"a damaged member: {describe_error(error)}")
                    continue
                free -= len(data)
                source.room.left += min(free, 0)
                free = max(free, 0)
                source.charge(data.count(b"{") + data.count(b"["), len(data))
                if len(data) > limit or source.room.left < 0:
                    tally.seen += 1
                    tally.skip(number, "a member that is too large; unpack or convert the archive")
                    continue
                yield entry.filename, data
    except (*_ERRORS, UnreadableError) as error:
        tally.seen += 1
        tally.skip(0, f"not a whole zip archive: {describe_error(error)}")


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limit: int) -> bytes:
    """The content of a member; if it is longer than `limit`, a little more than `limit` bytes."""
    if entry.compress_type != _ZSTD:
        with archive.open(entry) as stream:
            return stream.read(limit + 1)
    stored = copy.copy(entry)
    stored.compress_type, stored.file_size = zipfile.ZIP_STORED, entry.compress_size
    del stored.CRC  # it is that of the decompressed data
    unpack = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
    with archive.open(stored) as raw, unpack.stream_reader(raw, read_across_frames=True) as reader:
        pieces: list[bytes] = []
        size = 0
        while size <= limit and (piece := reader.read(min(CHUNK_BYTES, limit + 1 - size))):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)
