"""Describes an archive's files as a store records them: size, digest and state when read."""

import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import msgspec

from mcptally.transcript.digest import new_digest
from mcptally.transcript.remote import is_remote
from mcptally.transcript.unread import Unread, UnreadFile, summarize

if TYPE_CHECKING:
    from mcptally.transcript.files import Digests

TIMESTAMP_MARGIN_NS: Final = 2_000_000_000
"""Time in nanoseconds within which two changes to a file may get the same timestamp, because the
clocks of file systems are coarse."""


class SourceFile(msgspec.Struct, frozen=True, gc=False):
    """A file of the archive, in the state in which it was read.

    The class is exempt from garbage collection: there may be a million files, and they cannot form
    cycles.
    """

    file: str
    size: int
    digest: str
    stat: tuple[int, ...] | None = None
    """`mtime_ns`, `ctime_ns` and inode of the file, which change with its content. None if a later
    change might leave them the same."""
    whole: bool = True
    """False if the file changed while it was read, so that the next run reads it again."""
    unread: float = 0.0
    """The share of the file that could not be read, from 0 to 1."""
    fault: str = ""
    """Description of the first unreadable part, with its line; empty if all of the file was read.
    """

    def as_share(self, share: float) -> Self:
        """Scale the unread share of a part by `share`, the part's share of the whole file."""
        return msgspec.structs.replace(self, unread=round(share * self.unread, 6))

    def with_rest(self, other: Self) -> Self:
        """Combine the record for this part of the file with the record for the next part."""
        return msgspec.structs.replace(
            other,
            stat=self.stat if self.stat == other.stat else None,
            whole=self.whole and other.whole and self.digest == other.digest,
            unread=self.unread + other.unread,
            fault=self.fault or other.fault,
        )


def digest_of(path: Path) -> str:
    """Return the digest of a file in hex."""
    if is_remote(path):  # a remote file's digest was computed while the file was read
        return path.digest()
    digest = new_digest()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def unread_of(sources: Collection[SourceFile]) -> Unread | None:
    """Summarize which parts of the files could not be read; return None if everything was read."""
    if not any(each.fault for each in sources):
        return None
    return summarize(UnreadFile(each.file, each.size, each.unread, each.fault) for each in sources)


class FileState(NamedTuple):
    """Size, times and inode of a file before it was read."""

    identity: tuple[int, ...]
    """Size, mtime, ctime (nanoseconds) and inode."""
    stable: bool
    """Whether any later change to the file changes its identity."""


def identity_of(file: str | Path) -> tuple[int, int, int, int]:
    """Return a file's size, mtime, ctime and inode, as in `FileState.identity`."""
    stat = file.stat() if is_remote(file) else os.stat(file)  # noqa: PTH116  (of every file)
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def file_state(path: str | Path) -> FileState:
    """Return a file's current state; the state of a missing file is unstable and all zeros."""
    try:
        identity = identity_of(path)
    except OSError:
        return FileState((0, 0, 0, 0), stable=False)
    return FileState(identity, max(identity[1:3]) < time.time_ns() - TIMESTAMP_MARGIN_NS)


def source_of(
    path: Path, before: FileState | None = None, digests: "Digests | None" = None
) -> SourceFile:
    """Return the record that a store keeps for a file of the archive.

    Args:
        path: the file.
        before: the file's state before it was read.
        digests: digests computed while files were read; a file without a digest is read again.
    """
    now = file_state(path)
    digest = (digests or {}).get((path, now.identity[0]))
    if digest is None:
        try:
            digest = digest_of(path)
        except OSError:  # a finding reports the error
            return SourceFile(str(path), 0, "", whole=False)
        now = file_state(path)
    whole = before is None or before.identity == now.identity
    is_stable = before is not None and before.stable and whole
    size, *stat = now.identity
    return SourceFile(str(path), size, digest, tuple(stat) if is_stable else None, whole)
