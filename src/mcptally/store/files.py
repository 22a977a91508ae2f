"""A store on disk: Parquet files, and `store.json`, the manifest, which lists the live ones.

STORE/store.json                          format, versions, the archive's files, the live files
STORE/<table>/<number>-<run>.parquet      rows, zstd
STORE/.known/<kind>/<number>-<run>.parquet  what each recording says of its servers and tools, and
                                          what it is judged by: for the next run, which reuses
                                          what did not change
STORE/.work/                              work in progress of a run

A file is written once and never changed. A run adds files under new names, replaces `store.json`
in one step, and removes the files that it lists no longer. So a store is the one before or the one
after, whenever a run is killed; the next run removes what a killed one left.
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
from mcptally.transcript.remote import is_remote, was_url

STORE_FORMAT: Final = 2
"""Version of the store's layout; a store of another version is rebuilt, never migrated."""

MANIFEST: Final = "store.json"
WORK: Final = ".work"
KNOWN: Final = ".known"
VIEWS: Final = "mcptally.duckdb"
"""Views over the live files, for other DuckDB clients; see `database`."""

EMPTY: Final = "empty"
"""What the name of a file without rows begins with; every table has at least one file."""

RACY: Final = 2_000_000_000
"""Nanoseconds after a change in which a file may change again and look the same: clocks of file
systems are that coarse."""

PAYLOAD: Final = frozenset({"response", "text"})
"""Columns that hold what was said; dictionaries and statistics do not pay for them."""

DIFFERENT: Final = frozenset(
    {"call_id", "attempt_of", "requested_at", "answered_at", "at", "latency_ms"}
    | {"first_call", "last_call", "first_happy_at"}
)
"""Columns whose values hardly come twice: a dictionary of them is the column again."""

DICTIONARY: Final = 4 << 20
"""Bytes that a column's dictionary may have: the error texts of a row group."""


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A file of the archive as it was when it was read."""

    file: str
    size: int
    sha256: str
    stat: tuple[int, ...] | None = dataclasses.field(default=None, compare=False)
    """`mtime_ns`, `ctime_ns` and inode, by which an unchanged file is known without reading it;
    None where they say nothing."""
    whole: bool = dataclasses.field(default=True, compare=False)
    """Whether nothing changed while it was read; if not, the next run reads it again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """What was put into a store: of a partition, or carried over from another store."""

    rows: dict[str, int]
    """By table."""
    outcomes: dict[str, int]
    """Calls by outcome."""
    broken: int
    """Findings of severity error about files."""


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """What the rows of a store were made by, and what it is to say of its past."""

    rules: str = "default"
    """Digest of the rules and scenarios in force."""
    payloads: bool = True
    code: str = ""
    """Digest of the program: other programs may judge otherwise."""
    as_scored: Sequence[str] = ()
    """Recordings that are judged by what an earlier store knew: their files were not there."""
    forgotten: Sequence[Mapping[str, Any]] = ()
    """What was removed on request, and when: never what it said."""
    by: str = "score"
    """The command that makes the store from nothing: `score` or `merge`."""


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `store.json` says.

    Raises:
        StoreError: no store there, one that a first run left unfinished, or one of another version.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        if url := was_url(folder):
            raise StoreError(
                f"{url}: a store is asked in a folder; copy it into one first, as with: "
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
                if not name.startswith(KNOWN):
                    _require(folder, manifest, name, part["bytes"])
        except StoreError:
            # A run may have replaced the store since: then the files of the new one are there.
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
                f"{folder}: the first run into it has not come to its end; if none is running, "
                f"start the same command again: mcptally score ARCHIVE -o {folder}, or "
                f"mcptally merge STORES -o {folder}"
            ) from error
        raise StoreError(f"{folder}: is not a store (it has no {MANIFEST})") from error
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error


def _checked(folder: Path, manifest: Any) -> dict[str, Any]:
    """A manifest that this version reads.

    Raises:
        StoreError: it is none.
    """
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if isinstance(version, int | str) and version != STORE_FORMAT:
        raise StoreError(
            f"{folder}: is a store of format {version}, this mcptally reads format "
            f"{STORE_FORMAT}; {how_to_rebuild(folder, manifest)}"
        )
    if version != STORE_FORMAT or not _is_ours(manifest):
        raise StoreError(
            f"{folder / MANIFEST}: is no {MANIFEST} of ours; {how_to_rebuild(folder, manifest)}"
        )
    known: dict[str, Any] = manifest
    if missing := [name for name, found in live(folder, known).items() if not found]:
        raise StoreError(
            f"{folder}: has no table {', '.join(missing)}, as a store of another mcptally; "
            f"{how_to_rebuild(folder, manifest)}"
        )
    return known


def how_to_rebuild(folder: Path, manifest: Any) -> str:
    """What to do about a store that cannot be read: the transcripts of a merged one may be away."""
    if isinstance(manifest, dict) and manifest.get("made_by") == "merge":
        return f"merge the stores again: mcptally merge STORES -o {folder}"
    return f"rebuild it with: mcptally score ARCHIVE -o {folder}"


Files = Mapping[str, list[Path]]
"""The live files of a store: name of a table, or folder of notes → its files."""


def live(folder: Path, manifest: Mapping[str, Any]) -> Files:
    """The live files, in the order of the manifest; every table is there."""
    files: dict[str, list[Path]] = {table.name: [] for table in TABLES}
    for name in manifest["parts"]:
        files.setdefault(name.rpartition("/")[0], []).append(folder / name)
    return files


_PART: Final = re.compile(rf"({re.escape(KNOWN)}/)?[a-z_]+/[A-Za-z0-9_-]+\.parquet")
"""Names of live files: in a folder of the store, and nowhere else."""


def _is_ours(manifest: dict[str, Any]) -> bool:
    """Whether what is read of a manifest has the form that it was written in."""
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
    """See that a Parquet file is there, and as long as it was written."""
    try:
        now = (folder / name).stat().st_size
    except OSError as error:
        now, what = -1, f"cannot be read: {error.strerror}"
    else:
        what = f"is damaged: {now} bytes long, and was written with {size}"
    if now != size:
        raise StoreError(f"{folder / name}: {what}; {how_to_rebuild(folder, manifest)}")


def forgotten(folder: Path) -> list[dict[str, Any]]:
    """What was removed from a store on request, also from one of another format."""
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, RecursionError):
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return list(manifest.get("forgotten", ()))
    return []


@contextlib.contextmanager
def working(folder: Path) -> Iterator[Path]:
    """An empty work folder inside the store at `folder`, for this run alone; gone afterwards.

    Raises:
        StoreError: the folder holds something else than a store, or another run works in it.
    """
    _refuse_others(folder)
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with alone_in(folder):
            _refuse_others(folder)
            sweep(folder)
            try:
                yield prepare(folder)
            finally:
                sweep(folder)
    except BaseException as error:
        if new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        if isinstance(error, OSError | pl.exceptions.ComputeError) and _is_full(error):
            left = "it is as it was before" if (folder / MANIFEST).exists() else "it is not there"
            raise StoreError(
                f"{folder}: cannot be written, {error}; {left}; make room and score again"
            ) from error
        raise


def prepare(folder: Path) -> Path:
    """A new work folder inside the store at `folder`."""
    # Under a new name: a process that outlived a killed run writes where nobody looks.
    work = folder / WORK / secrets.token_hex(4)
    (work / KNOWN).mkdir(parents=True)
    return work


def _refuse_others(folder: Path) -> None:
    """See that what is in a folder is a store, or what a killed run left of one.

    Raises:
        StoreError: it is something else.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StoreError(f"{folder}: is a file; name a folder for the store")
    known = any((folder / name).exists() for name in (MANIFEST, WORK))
    if not known and any(folder.iterdir()):
        raise StoreError(
            f"{folder}: is a folder with other things in it and no store; name a new folder"
        )


def sweep(folder: Path) -> list[Path]:
    """Remove what the manifest does not list: files of the store before, and of killed runs.

    Only for the run that is alone in the store. Where the manifest cannot be read, nothing is
    removed. Gives the files that could not be removed.
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
        (folder / VIEWS).unlink(missing_ok=True)  # its views may name files that go now
    for path in old:
        try:
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        except OSError:  # in use (Windows), or not ours to remove
            left.append(path)
    shutil.rmtree(folder / WORK, ignore_errors=True)
    return left


def _unlisted(folder: Path, listed: Collection[str]) -> Iterator[Path]:
    """Files in the folders of a store that are not listed, and folders after what is in them."""
    for name in (*(table.name for table in TABLES), KNOWN):
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


def mark(folder: Path) -> tuple[int, int]:
    """What changes when a run replaces the store at `folder`."""
    try:
        stat = (folder / MANIFEST).stat()
    except OSError:
        return (0, 0)
    return (stat.st_ino, stat.st_mtime_ns)


def has_views(folder: Path) -> bool:
    """Whether `mcptally.duckdb` is of the store as it is now: it has the time of the manifest."""
    try:
        views, manifest = (folder / name for name in (VIEWS, MANIFEST))
        return views.stat().st_mtime_ns == manifest.stat().st_mtime_ns
    except OSError:
        return False


def _is_full(error: Exception) -> bool:
    """Whether there is no room: the writers say so in a number, or (polars) in words alone."""
    numbers = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
    said = isinstance(error, OSError) and error.errno in numbers
    return said or any(os.strerror(number) in str(error) for number in numbers)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """The folder locked for this process; the system lets go when the process ends."""
    if sys.platform == "win32":
        yield
        return
    import fcntl  # noqa: PLC0415  (not on every system)

    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(
            f"{folder}: another run is writing to this store; wait for its end"
        ) from None
    else:
        yield
    finally:
        os.close(file)


def write_part(work: Path, table: type[Table], part: str, frame: pl.DataFrame) -> int:
    """Write one part of a table into the work folder; gives the number of rows."""
    target = work / table.name / f"{part}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    data = table.frame(frame)
    order = data.select(pl.arg_sort_by(table.key, nulls_last=True).cast(pl.UInt32)).to_series()
    in_order = order.equals(pl.int_range(data.height, dtype=pl.UInt32, eager=True))
    schema = table.described(data.clear().to_arrow(compat_level=pl.CompatLevel.newest()).schema)
    # A row group at a time: the whole in order, and as Arrow has it, would be two copies more.
    with pq.ParquetWriter(target, schema, **_options(schema.names)) as writer:
        for start in range(0, max(1, data.height), ROW_GROUP):
            rows = data.slice(start, ROW_GROUP)
            if not in_order:
                rows = data[order.slice(start, ROW_GROUP)]
            writer.write_table(rows.to_arrow(compat_level=pl.CompatLevel.newest()))
    return data.height


def copy_part(source: Path, target: Path, keep: Callable[[pl.DataFrame], pl.DataFrame]) -> int:
    """Write the rows of a part that `keep` leaves, in their order; gives how many those are."""
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


SOUGHT: Final = frozenset(
    {"server", "tool", "recording", "session", "seq", "requested_at", "at", "outcome", "rule", "id"}
)
"""Columns that questions filter by: only their statistics let a reader pass over row groups."""

ROW_GROUP: Final = 50_000


def _options(names: Sequence[str]) -> dict[str, Any]:
    again = [name for name in names if name not in PAYLOAD | DIFFERENT]
    return {
        "compression": "zstd",
        "compression_level": 3,
        "use_dictionary": again,
        "dictionary_pagesize_limit": DICTIONARY,
        "write_statistics": [name for name in names if name in SOUGHT],
    }


def write_known(work: Path, part: str, frames: Mapping[str, pl.DataFrame]) -> None:
    """Write what the next run wants to know of a part into the work folder."""
    for kind, frame in frames.items():
        target = work / KNOWN / kind / f"{part}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        frame.write_parquet(target, compression="zstd", compression_level=1)


def sweep_known(work: Path) -> None:
    """Remove from a work folder what was noted of partitions that are no part of it."""
    for path in (work / KNOWN).rglob("*.parquet"):
        if not (work / Recordings.name / path.name).exists():
            path.unlink()


def publish(
    folder: Path,
    work: Path,
    *,
    sources: Iterable[Source],
    rows: Mapping[str, int],
    made: Made,
    kept: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> None:
    """Make the work folder's parts the store's, with files that it has already.

    Until `store.json` is replaced, the store is the one before. `sweep` removes what it lists no
    longer.

    Args:
        folder: the store.
        work: what `working` gave, with the parts written into it.
        sources: the archive's files.
        rows: name of each table → how many rows it has.
        made: what the rows were made by.
        kept: files of the store that stay, with what its manifest says of them.
    """
    held = {name.rpartition("/")[0] for name in kept}
    for table in TABLES:
        if table.name not in held and not any((work / table.name).glob("*.parquet")):
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
        "scored_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "rows": dict(rows),
        "archive": [dataclasses.asdict(source) for source in sources],
        "as_scored": list(made.as_scored),
        "forgotten": list(made.forgotten),
        "parts": {**kept, **new},
    }
    replace_manifest(folder, manifest)


def replace_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write `store.json` anew, in one step; for the run that is alone in the store."""
    draft = folder / WORK / MANIFEST
    draft.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, folder / MANIFEST)  # noqa: PTH105  (the atomic one, by its name)


def parts(work: Path) -> Iterator[tuple[str, Path]]:
    """Every Parquet file of a work folder that is to become a store, by its name."""
    for name in (*(table.name for table in TABLES), KNOWN):
        for path in sorted((work / name).rglob("*.parquet")):
            yield path.relative_to(work).as_posix(), path


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    if is_remote(path):  # read once already, over the network
        return path.sha256()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Look(NamedTuple):
    """A file as it was before it was read."""

    identity: tuple[int, ...]
    """Size, time of change, time of change of the file's own record, and inode."""
    settled: bool
    """Whether a later change is sure to show in them."""


def look(path: Path) -> Look:
    """The file as it is now, before it is read; one that is gone is nothing, and never settled."""
    try:
        stat = path.stat()
    except OSError:
        return Look((0, 0, 0, 0), settled=False)
    identity = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    return Look(identity, max(identity[1:3]) < time.time_ns() - RACY)


def source_of(path: Path, before: Look | None = None) -> Source:
    """Size and SHA-256 of a file of the archive; `before` is how it was when it was read."""
    try:
        sha256 = digest_of(path)
    except OSError:  # a finding says so
        return Source(str(path), 0, "", whole=False)
    now = look(path)
    whole = before is None or before.identity == now.identity
    steady = before is not None and before.settled and whole
    size, *stat = now.identity
    return Source(str(path), size, sha256, tuple(stat) if steady else None, whole)
