"""Manages the caches of stores and reports: location, validity and cleanup.

CACHE/<digest>/overview.json    the inputs and the answer
CACHE/<digest>/imported/        transcripts of imported logs, with reports
CACHE/<digest>/store/           the store
CACHE/<digest>/report.html      the report

CACHE is `$XDG_CACHE_HOME/mcptally`, by default `~/.cache/mcptally`. The digest identifies the given
paths. Only the user can read the folders (mode 0700).
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import mcptally
from mcptally.errors import UsageError

STORE: Final = "store"
PAGE: Final = "report.html"
IMPORTED: Final = "imported"
_STATE: Final = "overview.json"
_FORMAT: Final = 2
UNUSED_DAYS: Final = 30
"""Number of days without use after which a cache is removed."""
_FOLDER: Final = re.compile(r"[0-9a-f]{12}")
_SOURCES: Final = (".py", ".sql", ".html", ".css", ".js", ".toml", ".json")


def root() -> Path:
    """Return the folder of all caches, which may not exist yet.

    Raises:
        UsageError: the home folder is unknown.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():
        return Path(base) / "mcptally"
    try:
        return Path.home() / ".cache" / "mcptally"
    except RuntimeError:
        raise UsageError("the home folder is unknown; set XDG_CACHE_HOME to a folder") from None


def folder_of(caches: Path, paths: Iterable[Path]) -> Path:
    """Return the cache for the given paths, which depends only on the set of absolute paths."""
    names = sorted({os.path.abspath(path) for path in paths})  # noqa: PTH100  (keeps links)
    digest = hashlib.blake2b("\0".join(names).encode("utf-8", "surrogateescape"), digest_size=6)
    return caches / digest.hexdigest()


def create(caches: Path, folder: Path) -> None:
    """Create a cache's folder.

    Raises:
        UsageError: the folder cannot be created or belongs to another user.
    """
    try:
        caches.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        stat = folder.lstat()
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be created: {error.strerror}; set XDG_CACHE_HOME to a folder that "
            "can be written"
        ) from error
    if folder.is_symlink() or stat.st_uid != os.getuid():
        raise UsageError(
            f"{folder}: is a link or belongs to another user; set XDG_CACHE_HOME to a folder of "
            "your own"
        )
    folder.chmod(0o700)


@contextlib.contextmanager
def locked(folder: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Lock a cache for this process; wait if another process has locked it.

    Args:
        folder: the cache.
        on_wait: called before waiting for another process.
    """
    file = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def program_digest() -> str:
    """Return a digest of the program's version and of its files' sizes and modification times."""
    digest = hashlib.blake2b(mcptally.__version__.encode(), digest_size=8)
    package = Path(mcptally.__file__).parent
    for folder, folders, names in os.walk(package):
        folders.sort()
        for name in sorted(names):
            if name.endswith(_SOURCES):
                stat = os.stat(os.path.join(folder, name))  # noqa: PTH116, PTH118  (faster)
                digest.update(f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def read(folder: Path) -> dict[str, Any]:
    """Return the previous run's state; an empty dict if this version cannot read it."""
    try:
        found: dict[str, Any] = json.loads((folder / _STATE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("format") == _FORMAT else {}


def write(folder: Path, state: Mapping[str, Any]) -> None:
    """Store a run's state for the next run."""
    draft = folder / f"{_STATE}.{os.getpid()}"
    draft.touch(mode=0o600)
    draft.write_text(json.dumps({"format": _FORMAT, **state}), encoding="utf-8")
    draft.replace(folder / _STATE)


def mark(folder: Path) -> list[int]:
    """Return a value that changes whenever the store or the report is replaced."""
    stats = [(folder / name).stat() for name in (f"{STORE}/store.json", PAGE)]
    return [number for stat in stats for number in (stat.st_ino, stat.st_mtime_ns, stat.st_size)]


def is_current(folder: Path, earlier: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """Return whether the inputs, the program and the cached output are unchanged."""
    if any(earlier.get(name) != value for name, value in state.items()):
        return False
    try:
        return earlier.get("store") == mark(folder)
    except OSError:
        return False


def touch(folder: Path) -> None:
    """Record that a cache is being used."""
    os.utime(folder / _STATE)


def forget(folder: Path) -> None:
    """Remove the previous run's state, so that the next run computes everything again."""
    (folder / _STATE).unlink(missing_ok=True)


def sweep(caches: Path, *, keep: Path) -> None:
    """Remove the caches that have not been used for `UNUSED_DAYS` days."""
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    for folder in caches.iterdir():
        if folder == keep or folder.is_symlink() or not _FOLDER.fullmatch(folder.name):
            continue
        used = [path.stat().st_mtime for path in (folder, folder / _STATE) if path.exists()]
        if max(used, default=oldest) < oldest:
            shutil.rmtree(folder, ignore_errors=True)


def import_logs_anew(out: Path, logs: Sequence[Path]) -> int:
    """Empty a folder and import logs into it; return the number of unused lines.

    All logs are imported together: a server's messages are read from `mcp.log` of Claude Desktop
    only if the server has no log of its own in the same folder.
    """
    from mcptally.importers import import_logs  # noqa: PLC0415

    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(mode=0o700)
    return import_logs(logs, out).unused_lines if logs else 0
