"""Reads files at URLs (`s3://bucket/key` and other protocols of fsspec).

A `RemoteFile` stands in for a `Path` when an archive is read: it has a name, a size, times and a
stream of bytes. A connection error ends the run; if it became a finding, the tables would depend on
the network.
"""

import contextlib
import functools
import io
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, TypeGuard, cast

from mcptally.errors import McptallyError, UnreachableError, UnreadableError, UsageError
from mcptally.transcript.digest import new_digest
from mcptally.transcript.format import SUFFIXES

BLOCK: Final = 4 << 20
"""Bytes per request."""

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_EXTRAS: Final = {"s3": "s3", "s3a": "s3"}
"""Maps protocols to the extras that install their packages."""


def is_url(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a URL such as `s3://bucket/key`."""
    return isinstance(path, str) and _URL.match(path) is not None


def is_s3(url: str) -> bool:
    """Return whether a URL is an S3 URL."""
    return url.partition("://")[0].lower() in _EXTRAS


def how_to_copy(url: str, folder: str) -> str:
    """Return instructions for copying a store from a URL to a local folder, for messages."""
    command = f", as with: aws s3 sync {url} {folder}" if is_s3(url) else ""
    return f"copy it to a folder{command}"


def url_of_path(path: Path) -> str | None:
    """Return the URL that `Path` shortened to a form like `s3:/bucket`; None for other paths."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)", path.as_posix())
    if not found:
        return None
    root = "/" if found[1].lower() == "file" else ""
    return f"{found[1]}://{root}{path.as_posix()[found.end() :]}"


def not_found(path: Path) -> UnreadableError:
    """Return the error for a missing path, or for a URL where only local paths are accepted."""
    url = url_of_path(path)
    why = "is not a local path; `mcptally score` reads URLs" if url else "no such file or folder"
    return UnreadableError(f"{url or path}: {why}")


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


def resolve(url: str) -> tuple[Any, str]:
    """Return a URL's fsspec file system and the path within it.

    Raises:
        UsageError: a package is not installed, or the protocol is unknown.
    """
    system = _file_system(url.partition("://")[0].lower())
    return system, str(system._strip_protocol(url))  # noqa: SLF001  (fsspec's own name for it)


@contextlib.contextmanager
def reaching(url: str) -> Iterator[None]:
    """Return a context manager that converts file system errors to `UnreachableError`.

    Raises:
        UnreachableError: `url` cannot be reached; the message says why.
    """
    try:
        yield
    except McptallyError:
        raise
    except Exception as error:  # each file system has its own exceptions
        why = f"{error}"
        raise UnreachableError(f"{url}: cannot be reached: {why[:1].lower()}{why[1:]}") from error


class RemoteFile:
    """A file at a URL, with the size and version from its listing; ordered by URL."""

    def __init__(self, url: str, size: int, mark: tuple[int, int]) -> None:
        self.url = url
        self.size = size
        """Size in bytes."""
        self.mark = mark
        """Modification time in nanoseconds, and a number derived from the version."""
        self._read: str | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.url).name

    @property
    def suffix(self) -> str:
        """The suffix of the name."""
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
        """Return this file: a URL is always absolute."""
        return self

    def stat(self) -> os.stat_result:
        """Return the size and modification time; the file's version replaces the inode number."""
        changed, version = self.mark
        seconds = changed // 10**9
        fields = (0o100444, version, 0, 1, 0, 0, self.size, seconds, seconds, seconds)
        # Pass nanoseconds by name, because they are not part of the sequence.
        return os.stat_result(fields, {"st_mtime_ns": changed, "st_ctime_ns": changed})

    def raw(self) -> "_Stream":
        """Return an unbuffered stream of the file's bytes.

        Raises:
            McptallyError: now or during reads, if the file cannot be reached or has become shorter.
        """
        return _Stream(self)

    def open(self, _mode: str = "rb") -> BinaryIO:
        """Return a buffered stream of the file's bytes, which raises the same errors as `raw`."""
        return cast("BinaryIO", io.BufferedReader(self.raw(), BLOCK))

    def digest(self) -> str:
        """Return the digest in hex; the file is read unless it was already read to its end."""
        if self._read is None:
            with self.open() as file:
                while file.read(BLOCK):
                    pass
        assert self._read is not None  # noqa: S101  (the stream sets it at its end)
        return self._read

    def was_read(self, digest: str) -> None:
        """Store the digest that a stream computed."""
        self._read = digest


def is_remote(path: object) -> TypeGuard[RemoteFile]:
    """Return whether a value is a `RemoteFile` rather than a `Path`."""
    return isinstance(path, RemoteFile)


class _Stream(io.RawIOBase):
    """A stream of a remote file's bytes; computes the digest if it is read in order."""

    def __init__(self, file: RemoteFile) -> None:
        super().__init__()
        self.file = file
        self.size = file.size
        self._digest = new_digest()
        self._digested = 0
        with reaching(file.url):
            system, path = resolve(file.url)
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
    """Return the transcript files at a URL: a file, a folder (recursively), or a pattern.

    Each is a `RemoteFile`, which the reading stages accept like a `Path`.

    Raises:
        UnreadableError: there are no transcripts.
        UsageError: a package for the protocol is missing.
        McptallyError: the URL cannot be reached.
    """
    system, path = resolve(url)
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
        with reaching(url), contextlib.suppress(FileNotFoundError):
            system.ls(path)  # over HTTP, the calls above find nothing if the server is down
        raise UnreadableError(
            f"{url}: no transcripts found (looked for {', '.join('*' + s for s in SUFFIXES)})"
        )
    return cast("list[Path]", files)


def _listed(url: str, about: dict[str, Any]) -> RemoteFile:
    version = str(about.get("ETag") or about.get("etag") or "")
    number = int.from_bytes(new_digest(version.encode()).digest()[:6]) if version else 0
    return RemoteFile(url, int(about["size"] or 0), (int(changed_at(about) * 1e9), number))


def changed_at(about: dict[str, Any]) -> float:
    """Return the modification time in seconds since 1970, or the current time if it is unknown."""
    times = ("LastModified", "last_modified", "mtime", "created")
    # If unknown, the current time differs from any stored time, so the bytes are compared.
    changed = next((about[key] for key in times if key in about), time.time())
    return float(changed.timestamp() if hasattr(changed, "timestamp") else changed)
