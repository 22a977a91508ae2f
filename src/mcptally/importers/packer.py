"""Writes transcript lines to files: small recordings share files, large recordings get their own.

No recording is split across shared files, so no partition has to read several files together.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import zstandard

PACK_BYTES: Final = 64 << 20
"""Transcript bytes in a file of small recordings after which a new file is started."""

LARGE_BYTES: Final = 8 << 20
"""A recording of this many transcript bytes or more gets its own file."""

HELD_BYTES: Final = 64 << 20
"""Maximum transcript bytes of unfinished recordings in memory. Above this limit, the largest
recordings are moved to files."""

_PART: Final = ".part"


class Packer:
    """Writes the files `STEM-0000.jsonl.zst` … and `STEM-rRECORDING.jsonl.zst` to a folder."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder = folder
        self._stem = stem
        self._open: dict[str, list[bytes]] = {}
        self._sizes: dict[str, int] = {}
        self._held = 0
        self._own: dict[str, Path] = {}
        self._pack: list[bytes] = []
        self._pack_size = 0
        self._packs = 0
        self._parts: dict[Path, None] = {}

    def put(self, recording: str, line: bytes) -> None:
        """Add a line of a recording, including the newline."""
        self._open.setdefault(recording, []).append(line)
        size = self._sizes[recording] = self._sizes.get(recording, 0) + len(line)
        self._held += len(line)
        if size >= LARGE_BYTES:
            self._spill(recording)
        elif self._held >= HELD_BYTES:
            self._spill(max(self._sizes, key=self._sizes.__getitem__))

    def end(self, recording: str) -> None:
        """Mark a recording as complete."""
        if recording in self._own:
            self._spill(recording)
            del self._own[recording]
        lines = self._open.pop(recording, [])
        size = self._sizes.pop(recording, 0)
        self._held -= size
        self._pack += lines
        self._pack_size += size
        if self._pack_size >= PACK_BYTES:
            self._flush()

    def publish(self) -> list[Path]:
        """Rename the files to their final names, and delete the files of an earlier import."""
        for recording in list(self._open):
            self.end(recording)
        self._flush()
        done = [part.with_name(part.name.removesuffix(_PART)) for part in self._parts]
        ours = re.compile(re.escape(self._stem) + r"-(\d{4,}|r[0-9a-f]+)\.jsonl\.zst")
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            if ours.fullmatch(path.name) and path not in done:
                path.unlink()
        for part, path in zip(self._parts, done, strict=True):
            part.replace(path)
        return done

    def discard(self) -> None:
        """Delete the files that were not published."""
        for part in self._parts:
            part.unlink(missing_ok=True)

    def _spill(self, recording: str) -> None:
        lines = self._open.get(recording)
        if lines:
            digits = re.sub(r"[^0-9a-f]", "", recording)[-12:]
            path = self._own.setdefault(recording, self._part(f"r{digits}"))
            _append(path, lines)
        self._held -= self._sizes.get(recording, 0)
        self._open[recording], self._sizes[recording] = [], 0

    def _flush(self) -> None:
        if self._pack:
            _append(self._part(f"{self._packs:04d}"), self._pack)
            self._pack, self._pack_size = [], 0
            self._packs += 1

    def _part(self, name: str) -> Path:
        path = self._folder / f"{self._stem}-{name}.jsonl.zst{_PART}"
        if path not in self._parts:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.touch(mode=0o600)
            self._parts[path] = None
        return path


def _append(path: Path, lines: list[bytes]) -> None:
    pack: Callable[[bytes], bytes] = zstandard.ZstdCompressor(level=3).compress
    with path.open("ab") as file:
        file.write(pack(b"".join(lines)))
