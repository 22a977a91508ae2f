"""Files behind URLs (`s3://bucket/key` and whatever else fsspec knows), read as files here are.

A `RemoteFile` has what reading an archive asks of a `Path`: its name, its size and times, its bytes
in a stream. What goes wrong on the way to it is no property of the file, so it ends the run; a
finding would make the tables depend on the network.
"""

import contextlib
import datetime
import functools
import hashlib
import io
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, TypeGuard, cast

from mcptally.errors import McptallyError, UnreadableError, UsageError
from mcptally.transcript.format import SUFFIXES

BLOCK: Final = 4 << 20
"""Bytes that are asked for at a time."""

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_EXTRAS: Final = {"s3": "s3", "s3a": "s3"}
"""Protocol → the extra that brings what it needs."""


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an address such as `s3://bucket/key`."""
    return isinstance(path, str) and _URL.match(path) is not None


def was_url(path: Path) -> str | None:
    """The URL that somebody made a path of: a path has no two slashes in a row."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)", path.as_posix())
    return f"{found[1]}://{path.as_posix()[found.end() :]}" if found else None


@functools.lru_cache(maxsize=8)
def _file_system(protocol: str) -> Any:
    try:
        import fsspec  # noqa: PLC0415  (an extra)

        return fsspec.filesystem(protocol)
    except (ImportError, ValueError) as error:
        if protocol in _EXTRAS or isinstance(error, ModuleNotFoundError):
            extra = _EXTRAS.get(protocol, "s3")
            raise UsageError(
                f"{protocol}:// needs a package that is not installed: "
                f"pip install 'mcptally[{extra}]'"
            ) from error
        raise UsageError(f"{protocol}:// cannot be read: {error}") from error


def place(url: str) -> tuple[Any, str]:
    """The file system of a URL, and its path there.

    Raises:
        UsageError: what it takes is not installed, or there is no such protocol.
    """
    system = _file_system(url.partition("://")[0].lower())
    return system, str(system._strip_protocol(url))  # noqa: SLF001  (fsspec's own name for it)


@contextlib.contextmanager
def reaching(url: str) -> Iterator[None]:
    """What a file system raises, said as an error of ours.

    Raises:
        McptallyError: `url` cannot be reached, and why.
    """
    try:
        yield
    except McptallyError:
        raise
    except Exception as error:  # every file system has exceptions of its own; all mean this
        raise McptallyError(f"{url}: cannot be reached: {type(error).__name__}: {error}") from error


class RemoteFile:
    """A file behind a URL, as it was when it was listed; ordered by its URL."""

    def __init__(self, url: str, size: int, mark: tuple[int, int]) -> None:
        self.url = url
        self.size = size
        """Bytes."""
        self.mark = mark
        """When it changed, in nanoseconds, and a number that stands for its version."""
        self._read: str | None = None

    @property
    def name(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.url).name

    @property
    def suffix(self) -> str:
        """What its name ends in."""
        return PurePosixPath(self.url).suffix

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"RemoteFile({self.url!r})"

    def __fspath__(self) -> str:
        return self.url

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteFile) and other.url == self.url

    def __hash__(self) -> int:
        return hash(self.url)

    def __lt__(self, other: object) -> bool:
        return self.url < str(other)

    def __gt__(self, other: object) -> bool:
        return self.url > str(other)

    def absolute(self) -> "RemoteFile":
        """Itself: it is the same from everywhere."""
        return self

    def stat(self) -> os.stat_result:
        """Its size, time of change and version (as inode), as far as they are known."""
        changed, version = self.mark
        seconds = changed // 10**9
        fields = (0o100444, version, 0, 1, 0, 0, self.size, seconds, seconds, seconds)
        # By name, for nanoseconds are no part of the sequence.
        return os.stat_result(fields, {"st_mtime_ns": changed, "st_ctime_ns": changed})

    def raw(self) -> "_Stream":
        """Its bytes, as they come.

        Raises:
            McptallyError: here or while it is read: it cannot be reached, or has become shorter.
        """
        return _Stream(self)

    def open(self, _mode: str = "rb") -> BinaryIO:
        """Its bytes, to be read; errors as in `raw`."""
        return cast("BinaryIO", io.BufferedReader(self.raw(), BLOCK))

    def sha256(self) -> str:
        """Hex digits of its SHA-256: made while it was read, if it was read to its end."""
        if self._read is None:
            with self.open() as file:
                while file.read(BLOCK):
                    pass
        assert self._read is not None  # noqa: S101  (the stream says so at its end)
        return self._read

    def was_read(self, digest: str) -> None:
        """Keep the digest of what a stream gave."""
        self._read = digest


def is_remote(path: object) -> TypeGuard[RemoteFile]:
    """Whether what stands where a `Path` is expected is a remote file."""
    return isinstance(path, RemoteFile)


class _Stream(io.RawIOBase):
    """The bytes of a remote file, and their digest once all of them went by."""

    def __init__(self, file: RemoteFile) -> None:
        super().__init__()
        self.file = file
        self.size = file.size
        self._digest = hashlib.sha256()
        self._digested = 0
        with reaching(file.url):
            system, path = place(file.url)
            self._remote = system.open(path, "rb", block_size=BLOCK)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._remote.tell())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._remote.seek(offset, whence))

    def readinto(self, buffer: Any) -> int:
        at = self.tell()
        with reaching(self.file.url):
            data = self._remote.read(min(len(buffer), max(self.size - at, 0)))
        buffer[: len(data)] = data
        if at <= self._digested < at + len(data):
            self._digest.update(data[self._digested - at :])
            self._digested = at + len(data)
        if not data and len(buffer) and at < self.size:
            raise McptallyError(f"{self.file.url}: is shorter than when it was listed; score again")
        if self._digested == self.size:
            self.file.was_read(self._digest.hexdigest())
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._remote.close()
        super().close()


def discover(url: str) -> list[Path]:
    """The transcript files that a URL names: a file, a folder (recursively), or a pattern.

    Each is a `RemoteFile`: it stands where the stages of reading expect a `Path`.

    Raises:
        UnreadableError: nothing is there.
        UsageError: what the protocol takes is not installed.
        McptallyError: it cannot be reached.
    """
    system, path = place(url)
    with reaching(url):
        system.invalidate_cache()
        if system.isfile(path):
            found = {path: system.info(path)}
        elif any(sign in path for sign in "*?["):
            found = system.glob(path, detail=True)
        else:
            found = system.find(path, detail=True)
            found = {name: about for name, about in found.items() if name.endswith(SUFFIXES)}
    files = [
        _listed(str(system.unstrip_protocol(name)), about)
        for name, about in found.items()
        if about.get("type", "file") == "file"
    ]
    if not files:
        raise UnreadableError(
            f"{url}: no transcripts there (looked for {', '.join('*' + s for s in SUFFIXES)})"
        )
    return cast("list[Path]", files)


def _listed(url: str, about: dict[str, Any]) -> RemoteFile:
    version = str(about.get("ETag") or about.get("etag") or "")
    number = int.from_bytes(hashlib.sha256(version.encode()).digest()[:6]) if version else 0
    return RemoteFile(url, int(about["size"] or 0), (int(_changed(about) * 1e9), number))


def _changed(about: dict[str, Any]) -> float:
    """When a file changed, in seconds since 1970; now where that is not known."""
    times = ("LastModified", "last_modified", "mtime", "created")
    # Not known: then nothing but its bytes says whether it is the same.
    changed = next((about[key] for key in times if key in about), time.time())
    return float(changed.timestamp() if hasattr(changed, "timestamp") else changed)


def names(url: str) -> list[str]:
    """What lies below a URL, each by its path from there, sorted.

    Raises:
        McptallyError: it cannot be reached.
    """
    system, path = place(url)
    with reaching(url):
        system.invalidate_cache()
        found = [str(name) for name in system.find(path)]
    base = path.rstrip("/") + "/"
    return sorted(name.removeprefix(base) for name in found if name.startswith(base))


def put(folder: Path, url: str, parts: Sequence[str]) -> None:
    """Copy files of a folder to below a URL, each by its path from there; each appears whole.

    Raises:
        McptallyError: it cannot be reached.
    """
    system, path = place(url)
    if parts:
        with reaching(url):
            system.put([str(folder / name) for name in parts], [f"{path}/{name}" for name in parts])


def version(url: str, name: str) -> str | None:
    """What changes when a file below a URL is replaced: its ETag on S3, elsewhere a digest of it.

    None where there is no such file.

    Raises:
        McptallyError: it cannot be reached.
    """
    system, path = place(url)
    with reaching(f"{url}/{name}"):
        system.invalidate_cache()
        try:
            if _is_s3(url):
                return str(system.info(f"{path}/{name}")["ETag"])
            return hashlib.sha256(system.cat_file(f"{path}/{name}")).hexdigest()
        except FileNotFoundError:
            return None


def put_over(file: Path, url: str, name: str, *, before: str | None) -> bool:
    """Put a file below a URL in the place of this version of it (None: of nothing).

    On S3 the request has a condition (`If-Match`, `If-None-Match`): where another version is there,
    nothing is put. Other protocols have no such condition: the file is put whatever is there.

    Gives whether it was put.

    Raises:
        McptallyError: it cannot be reached.
    """
    system, path = place(url)
    condition = {"mode": "create"} if before is None else {"IfMatch": before}
    with reaching(f"{url}/{name}"):
        try:
            system.pipe_file(
                f"{path}/{name}", file.read_bytes(), **(condition if _is_s3(url) else {})
            )
        except OSError as error:
            cause = getattr(error.__cause__, "response", {})
            if cause.get("Error", {}).get("Code") in _REFUSED:
                return False
            raise
    return True


_REFUSED: Final = frozenset(
    {"PreconditionFailed", "412", "ConditionalRequestConflict", "NoSuchKey"}
)
"""Codes by which S3 says that a condition of a PUT does not hold."""


def _is_s3(url: str) -> bool:
    return url.partition("://")[0].lower() in _EXTRAS


def ages(url: str) -> dict[str, datetime.timedelta]:
    """How old each file below a URL is, by its path from there; zero where that is not known.

    Raises:
        McptallyError: it cannot be reached.
    """
    system, path = place(url)
    with reaching(url):
        system.invalidate_cache()
        found = system.find(path, detail=True)
    base = path.rstrip("/") + "/"
    now = time.time()
    return {
        str(name).removeprefix(base): datetime.timedelta(seconds=max(0, now - _changed(about)))
        for name, about in found.items()
        if str(name).startswith(base)
    }


def fetch(url: str, folder: Path, parts: Sequence[str]) -> None:
    """Copy what lies below a URL into a folder, each file to its path from there.

    Raises:
        McptallyError: it cannot be reached.
    """
    system, path = place(url)
    for name in parts:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    if parts:
        with reaching(url):
            system.get([f"{path}/{name}" for name in parts], [str(folder / name) for name in parts])


def remove(url: str, parts: Sequence[str]) -> None:
    """Remove files below a URL, each by its path from there.

    Raises:
        McptallyError: it cannot be reached.
    """
    system, path = place(url)
    if parts:
        with reaching(url):
            system.rm([f"{path}/{name}" for name in parts])
