"""The files of a store: Parquet files, and `store.json`, the manifest that lists the live ones.

STORE/store.json                            format, versions, files of the archive, live files
STORE/<table>/<number>-<run>.parquet        rows, zstd
STORE/.known/<kind>/<number>-<run>.parquet  summaries of partitions: the next run reads them to find
                                            out which rows it can reuse
STORE/.work/                                work in progress of a run

A file is written once and never changed. A run adds files under new names, replaces `store.json` in
one step, and removes the files that it no longer lists. So a run that is killed leaves either the
old store or the new one; the next run removes its other files.
"""

import contextlib
import dataclasses
import datetime
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import mcptally
from mcptally.errors import StoreError
from mcptally.store.plain_files import require_plain_files
from mcptally.tables.all_tables import TABLES
from mcptally.tables.declaration import Table
from mcptally.tables.recordings import Recordings
from mcptally.transcript.remote import is_remote, url_of_path

STORE_FORMAT: Final = 3
"""Version of the store's layout. A store of another version is rebuilt, not migrated."""

MANIFEST: Final = "store.json"
WORK: Final = ".work"
SUMMARIES: Final = ".known"
VIEWS: Final = "mcptally.duckdb"
"""Views over the live files for other DuckDB clients; see `analytics.duckdb_file`."""

EMPTY: Final = "empty"
"""Prefix of the name of a file without rows; every table has at least one file."""

TIMESTAMP_MARGIN_NS: Final = 2_000_000_000
"""Nanoseconds within which two changes of a file may get the same time: file systems have coarse
clocks."""

_PAYLOADS: Final = frozenset({"response", "text"})
"""Columns of payloads, for which Parquet dictionaries and statistics cost more than they save."""

_MOSTLY_DISTINCT: Final = frozenset(
    {"call_id", "attempt_of", "requested_at", "answered_at", "at", "latency_ms"}
    | {"first_call", "last_call"}
)
"""Columns whose values rarely repeat, so that a dictionary would be as large as the column."""

_DICTIONARY_BYTES: Final = 4 << 20
"""Limit of a column's dictionary: enough for the error texts of a row group."""


@dataclasses.dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of the archive as it was when it was read."""

    file: str
    size: int
    sha256: str
    stat: tuple[int, ...] | None = dataclasses.field(default=None, compare=False)
    """`mtime_ns`, `ctime_ns` and inode: a file with the same values is unchanged. None if a later
    change might not show in them."""
    whole: bool = dataclasses.field(default=True, compare=False)
    """Whether the file did not change while it was read; otherwise the next run reads it again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """Numbers of rows that were put into a store."""

    rows: dict[str, int]
    """Rows by name of table."""
    outcomes: dict[str, int]
    """Calls by outcome."""
    broken: int
    """Findings of severity error about files."""


@dataclasses.dataclass(frozen=True, slots=True)
class Provenance:
    """The provenance of a store: what its rows were made with, and what its manifest keeps."""

    rules: str = "default"
    """Digest of the rules and scenarios in force."""
    payloads: bool = True
    code: str = ""
    """Digest of the program, as another version may judge differently."""
    as_scored: Sequence[str] = ()
    """Recordings that should have been scored again, and whose files were not available."""
    forgotten: Sequence[Mapping[str, Any]] = ()
    """When data was removed on request, and how much: never which."""
    by: str = "score"
    """The command that can make the store anew: `score` or `merge`."""
    selection: Mapping[str, Any] | None = None
    """The part of the archive that was scored; None: all of it."""


def read_manifest(folder: Path) -> dict[str, Any]:
    """The content of `store.json`.

    Raises:
        StoreError: there is no store, the first run into it did not end, it has another format, or
            a file is missing or damaged.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        if url := url_of_path(folder):
            raise StoreError(
                f"{url}: a store must be in a local folder to be queried; copy it first, as with: "
                f"aws s3 sync {url} {folder.name}"
            )
        raise StoreError(
            f"{folder}: no such store; make one with: mcptally score ARCHIVE -o {folder}"
        )
    require_plain_files(folder)
    while True:
        manifest = _checked(folder, _load(path))
        try:
            for name, part in manifest["parts"].items():
                if not name.startswith(SUMMARIES):
                    _require(folder, manifest, name, part["bytes"])
        except StoreError:
            # If a run has replaced the store since, read the new manifest.
            if _load(path) == manifest:
                raise
        else:
            return manifest


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        folder = path.parent
        if (folder / WORK).is_dir():
            raise StoreError(
                f"{folder}: the first run into this store has not ended; if no run is active, "
                f"start the same command again: mcptally score ARCHIVE -o {folder}, or "
                f"mcptally merge STORES -o {folder}"
            ) from error
        raise StoreError(f"{folder}: is not a store (it has no {MANIFEST})") from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"{path}: cannot be read: {error}; start the command that made the store again: "
            f"mcptally score ARCHIVE -o {path.parent}, or mcptally merge STORES -o {path.parent}"
        ) from error


def _checked(folder: Path, manifest: Any) -> dict[str, Any]:
    """The manifest, if this version can read it.

    Raises:
        StoreError: the manifest is of another format, or not a manifest.
    """
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if isinstance(version, int | str) and version != STORE_FORMAT:
        raise StoreError(
            f"{folder}: is a store of format {version}, this mcptally reads format "
            f"{STORE_FORMAT}; {how_to_rebuild(folder, manifest)}"
        )
    if version != STORE_FORMAT or not _is_ours(manifest):
        raise StoreError(
            f"{folder / MANIFEST}: is not a manifest of mcptally; "
            f"{how_to_rebuild(folder, manifest)}"
        )
    known: dict[str, Any] = manifest
    if missing := [name for name, found in live_files(folder, known).items() if not found]:
        raise StoreError(
            f"{folder}: has no table {', '.join(missing)}: another version of mcptally made it; "
            f"{how_to_rebuild(folder, manifest)}"
        )
    return known


def how_to_rebuild(folder: Path, manifest: Any) -> str:
    """Advice for a store that cannot be read: merge again, or score again."""
    if isinstance(manifest, dict) and manifest.get("made_by") == "merge":
        return f"merge the stores again: mcptally merge STORES -o {folder}"
    return f"rebuild it with: mcptally score ARCHIVE -o {folder}"


LiveFiles = Mapping[str, list[Path]]
"""The live files of a store: name of a table, or folder of summaries → its files."""


def live_files(folder: Path, manifest: Mapping[str, Any]) -> LiveFiles:
    """The live files in the order of the manifest; every table has an entry."""
    files: dict[str, list[Path]] = {table.name: [] for table in TABLES}
    for name in manifest["parts"]:
        files.setdefault(name.rpartition("/")[0], []).append(folder / name)
    return files


_PART: Final = re.compile(rf"({re.escape(SUMMARIES)}/)?[a-z_]+/[A-Za-z0-9_-]+\.parquet")
"""Valid names of live files: relative paths into the folders of the store."""


def _is_ours(manifest: dict[str, Any]) -> bool:
    """Whether the members of a manifest that are read have the right types."""
    sources, parts = manifest.get("archive"), manifest.get("parts")
    return (
        isinstance(sources, list)
        and all(isinstance(source, dict) for source in sources)
        and isinstance(parts, dict)
        and all(
            _PART.fullmatch(name) and isinstance(part, dict) and type(part.get("bytes")) is int
            for name, part in parts.items()
        )
    )


def _require(folder: Path, manifest: Mapping[str, Any], name: str, size: int) -> None:
    """Check that a Parquet file exists and has the length that it was written with."""
    try:
        now = (folder / name).stat().st_size
    except OSError as error:
        now, what = -1, f"cannot be read: {error.strerror}"
    else:
        what = f"is damaged: it has {now} bytes and was written with {size}"
    if now != size:
        raise StoreError(f"{folder / name}: {what}; {how_to_rebuild(folder, manifest)}")


def forgotten(folder: Path) -> list[dict[str, Any]]:
    """The manifest's list of removals on request, also of a store of another format."""
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, RecursionError):
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return list(manifest.get("forgotten", ()))
    return []


@contextlib.contextmanager
def working(folder: Path) -> Iterator[Path]:
    """An empty work folder inside the store at `folder`, locked for this run; removed afterwards.

    Raises:
        StoreError: the folder holds something other than a store, another run works in it, or the
            disk is full.
    """
    _require_store_or_empty(folder)
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with alone_in(folder):
            _require_store_or_empty(folder)
            remove_unlisted(folder)
            try:
                yield create_work_folder(folder)
            finally:
                remove_unlisted(folder)
    except BaseException as error:
        if new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        if isinstance(error, OSError | pl.exceptions.ComputeError) and _is_full(error):
            left = "it is as it was before" if (folder / MANIFEST).exists() else "there is no store"
            raise StoreError(
                f"{folder}: cannot be written, {error}; {left}; free some space and score again"
            ) from error
        raise


def create_work_folder(folder: Path) -> Path:
    """A new work folder inside the store at `folder`."""
    # A new name: a process that survives its run must not write into the next work folder.
    work = folder / WORK / secrets.token_hex(4)
    (work / SUMMARIES).mkdir(parents=True)
    return work


def _require_store_or_empty(folder: Path) -> None:
    """Check that a folder is empty, a store, or what a killed run left of one.

    Raises:
        StoreError: it is something else.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StoreError(f"{folder}: is a file; name a folder for the store")
    known = any((folder / name).exists() for name in (MANIFEST, WORK))
    if not known and any(folder.iterdir()):
        raise StoreError(f"{folder}: is not a store and has other files in it; name a new folder")


def remove_unlisted(folder: Path) -> list[Path]:
    """Remove the files that the manifest does not list; gives those that could not be removed.

    They belong to the previous store or to killed runs. The caller must hold the lock of the store.
    Without a readable manifest only work folders are removed.
    """
    manifest = folder / MANIFEST
    listed: set[str] = set()
    if manifest.exists():
        try:
            listed = _checked(folder, _load(manifest))["parts"].keys()
        except StoreError:
            shutil.rmtree(folder / WORK, ignore_errors=True)
            return []
    left, old = [], list(_unlisted(folder, listed))
    if old and not has_views(folder):
        (folder / VIEWS).unlink(missing_ok=True)  # its views may name files that are removed now
    for path in old:
        try:
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        except OSError:  # in use (Windows), or no permission
            left.append(path)
    shutil.rmtree(folder / WORK, ignore_errors=True)
    return left


def _unlisted(folder: Path, listed: Collection[str]) -> Iterator[Path]:
    """Files in a store's folders that are not listed, and empty folders after their content."""
    for name in (*(table.name for table in TABLES), SUMMARIES):
        place = folder / name
        if place.is_symlink():
            yield place
            continue
        for at, folders, files in os.walk(place, topdown=False):
            links = [each for each in folders if (Path(at) / each).is_symlink()]
            for path in (Path(at) / each for each in (*files, *links)):
                if path.relative_to(folder).as_posix() not in listed:
                    yield path
            here = f"{Path(at).relative_to(folder).as_posix()}/"
            if not any(part.startswith(here) for part in listed):
                yield Path(at)


def manifest_version(folder: Path) -> tuple[int, int]:
    """Inode and time of the manifest: they change when a run replaces the store at `folder`."""
    try:
        stat = (folder / MANIFEST).stat()
    except OSError:
        return (0, 0)
    return (stat.st_ino, stat.st_mtime_ns)


def has_views(folder: Path) -> bool:
    """Whether `mcptally.duckdb` belongs to the current manifest: it has the manifest's time."""
    try:
        views, manifest = (folder / name for name in (VIEWS, MANIFEST))
        return views.stat().st_mtime_ns == manifest.stat().st_mtime_ns
    except OSError:
        return False


def _is_full(error: Exception) -> bool:
    """Whether the disk is full. Writers report it by error number, polars only in the message."""
    numbers = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
    by_number = isinstance(error, OSError) and error.errno in numbers
    return by_number or any(os.strerror(number) in str(error) for number in numbers)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lock a store for this process; the system releases the lock when the process ends."""
    if sys.platform == "win32":
        yield
        return
    import fcntl  # noqa: PLC0415  (not on every system)

    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(
            f"{folder}: another run is writing to this store; wait until it ends"
        ) from None
    else:
        yield
    finally:
        os.close(file)


def write_part(work: Path, table: type[Table], part: str, frame: pl.DataFrame) -> int:
    """Write a part of a table into the work folder, sorted by its key; gives the number of rows."""
    target = work / table.name / f"{part}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    data = table.frame(frame)
    order = data.select(pl.arg_sort_by(table.key, nulls_last=True).cast(pl.UInt32)).to_series()
    in_order = order.equals(pl.int_range(data.height, dtype=pl.UInt32, eager=True))
    schema = table.described(data.clear().to_arrow(compat_level=pl.CompatLevel.newest()).schema)
    # One row group at a time: sorting and converting the whole frame would make two more copies.
    with pq.ParquetWriter(target, schema, **_options(schema.names)) as writer:
        for start in range(0, max(1, data.height), ROW_GROUP):
            rows = data.slice(start, ROW_GROUP)
            if not in_order:
                rows = data[order.slice(start, ROW_GROUP)]
            writer.write_table(rows.to_arrow(compat_level=pl.CompatLevel.newest()))
    return data.height


def copy_part(source: Path, target: Path, keep: Callable[[pl.DataFrame], pl.DataFrame]) -> int:
    """Write the rows of a part that the filter `keep` returns; gives their number."""
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    with pq.ParquetFile(source) as file:
        schema = file.schema_arrow
        with pq.ParquetWriter(target, schema, **_options(schema.names)) as writer:
            for batch in file.iter_batches(batch_size=ROW_GROUP):
                kept = keep(cast("pl.DataFrame", pl.from_arrow(batch)))
                if kept.height:
                    arrow = kept.to_arrow(compat_level=pl.CompatLevel.newest()).cast(schema)
                    writer.write_table(arrow)
                    rows += kept.height
    return rows


_FILTERED: Final = frozenset(
    {"server", "tool", "recording", "session", "seq", "requested_at", "at", "outcome", "rule", "id"}
)
"""Columns that queries filter by; with their statistics a reader can skip row groups."""

ROW_GROUP: Final = 50_000


def _options(names: Sequence[str]) -> dict[str, Any]:
    repeating = [name for name in names if name not in _PAYLOADS | _MOSTLY_DISTINCT]
    return {
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": repeating,
        "dictionary_pagesize_limit": _DICTIONARY_BYTES,
        "write_statistics": [name for name in names if name in _FILTERED],
    }


def write_summary(work: Path, part: str, frames: Mapping[str, pl.DataFrame]) -> None:
    """Write the summary of a part (kind → rows) into the work folder."""
    for kind, frame in frames.items():
        target = work / SUMMARIES / kind / f"{part}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        frame.write_parquet(target, compression="zstd", compression_level=1)


def remove_orphan_summaries(work: Path) -> None:
    """Remove from a work folder the summaries of partitions that were not finished."""
    for path in (work / SUMMARIES).rglob("*.parquet"):
        if not (work / Recordings.name / path.name).exists():
            path.unlink()


def publish(
    folder: Path,
    work: Path,
    *,
    sources: Iterable[SourceFile],
    rows: Mapping[str, int],
    made: Provenance,
    kept: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> None:
    """Move the parts of the work folder into the store and replace its manifest.

    Readers see the previous store until `store.json` is replaced. `sweep` removes old files.

    Args:
        folder: the store.
        work: the folder that `working` gave, with the parts written into it.
        sources: the archive's files.
        rows: name of each table → number of rows in the new store.
        made: provenance of the rows.
        kept: files of the store that stay, with their entries in its manifest.
    """
    kept_tables = {name.rpartition("/")[0] for name in kept}
    for table in TABLES:
        if table.name not in kept_tables and not any((work / table.name).glob("*.parquet")):
            (work / table.name).mkdir(exist_ok=True)
            schema = table.described(table.frame(pl.DataFrame()).to_arrow().schema)
            pq.write_table(
                pa.Table.from_batches([], schema),
                work / table.name / f"{EMPTY}.parquet",
            )
    run = secrets.token_hex(4)
    new = {}
    for name, path in parts(work):
        target = folder / f"{name.removesuffix('.parquet')}-{run}.parquet"
        new[target.relative_to(folder).as_posix()] = {
            "bytes": path.stat().st_size,
            "sha256": digest_of(path),
        }
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    manifest = {
        "format": STORE_FORMAT,
        "mcptally": mcptally.__version__,
        "made_by": made.by,
        "code": made.code,
        "rules": made.rules,
        "payloads": made.payloads,
        "selection": made.selection,
        "scored_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "rows": dict(rows),
        "archive": [dataclasses.asdict(source) for source in sources],
        "as_scored": list(made.as_scored),
        "forgotten": list(made.forgotten),
        "parts": {**kept, **new},
    }
    replace_manifest(folder, manifest)


def replace_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Replace `store.json` in one step. The caller must hold the lock of the store."""
    draft = folder / WORK / MANIFEST
    draft.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, folder / MANIFEST)  # noqa: PTH105  (atomic)


def parts(work: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of each Parquet file in the table and summary folders of a work folder."""
    for name in (*(table.name for table in TABLES), SUMMARIES):
        for path in sorted((work / name).rglob("*.parquet")):
            yield path.relative_to(work).as_posix(), path


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    if is_remote(path):  # computed while it was read over the network
        return path.sha256()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class FileState(NamedTuple):
    """Size, times and inode of a file before it was read."""

    identity: tuple[int, ...]
    """Size, mtime, ctime (nanoseconds) and inode."""
    stable: bool
    """Whether every later change will show in them."""


def file_state(path: Path) -> FileState:
    """The state of a file now; of a missing file all zeros, and not stable."""
    try:
        stat = path.stat()
    except OSError:
        return FileState((0, 0, 0, 0), stable=False)
    identity = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    return FileState(identity, max(identity[1:3]) < time.time_ns() - TIMESTAMP_MARGIN_NS)


def source_of(path: Path, before: FileState | None = None) -> SourceFile:
    """Size and SHA-256 of a file of the archive; `before` is its state before it was read."""
    try:
        sha256 = digest_of(path)
    except OSError:  # reported as a finding
        return SourceFile(str(path), 0, "", whole=False)
    now = file_state(path)
    whole = before is None or before.identity == now.identity
    is_stable = before is not None and before.stable and whole
    size, *stat = now.identity
    return SourceFile(str(path), size, sha256, tuple(stat) if is_stable else None, whole)
