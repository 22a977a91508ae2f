"""Writes transcript lines to files that recordings share.

No recording is divided between files, so no partition has to read several files together.
"""

import re
from pathlib import Path
from typing import Final

import zstandard

FILE_BYTES: Final = 64 << 20
"""Transcript bytes in a file after which further recordings go to a new file."""

HELD_BYTES: Final = 64 << 20
"""Maximum transcript bytes in memory. At this limit, all of them are compressed and written."""

_PART: Final = ".part"


class Packer:
    """Writes the files `STEM-0000.jsonl.zst`, `STEM-0001.jsonl.zst` and so on to a folder."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder = folder
        self._stem = stem
        self._file_of: dict[str, Path] = {}
        """Maps the unfinished recordings to their files."""
        self._sizes: dict[Path, int] = {}
        """Maps the files, which have their final names later, to their transcript bytes."""
        self._buffers: dict[Path, bytearray] = {}
        self._held = 0

    def put(self, recording: str, line: bytes) -> None:
        """Add a line of a recording, including the newline."""
        part = self._file_of.get(recording)
        if part is None:
            part = self._file_of[recording] = self._newest_file()
        self._sizes[part] += len(line)
        self._buffers.setdefault(part, bytearray()).extend(line)
        self._held += len(line)
        if self._held >= HELD_BYTES:
            self._flush()

    def end(self, recording: str) -> None:
        """Mark a recording as complete."""
        del self._file_of[recording]

    def publish(self) -> list[Path]:
        """Rename the files to their final names, and delete the files of an earlier import."""
        self._flush()
        done = [part.with_name(part.name.removesuffix(_PART)) for part in self._sizes]
        ours = re.compile(re.escape(self._stem) + r"-\d{4,}\.jsonl\.zst")
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            if ours.fullmatch(path.name) and path not in done:
                path.unlink()
        for part, path in zip(self._sizes, done, strict=True):
            part.replace(path)
        return done

    def discard(self) -> None:
        """Delete the files that were not published."""
        for part in self._sizes:
            part.unlink(missing_ok=True)

    def _newest_file(self) -> Path:
        """Return the newest file, or create a new one if it is full."""
        newest = next(reversed(self._sizes), None)
        if newest is not None and self._sizes[newest] < FILE_BYTES:
            return newest
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._folder / f"{self._stem}-{len(self._sizes):04d}.jsonl.zst{_PART}"
        part.unlink(missing_ok=True)
        part.touch(mode=0o600)
        self._sizes[part] = 0
        return part

    def _flush(self) -> None:
        for part, data in self._buffers.items():
            with part.open("ab") as file:
                file.write(zstandard.ZstdCompressor(level=3).compress(data))
        self._buffers.clear()
        self._held = 0
