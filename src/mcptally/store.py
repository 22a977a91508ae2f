"""A store on disk: one Parquet dataset a table, and `store.json`, which is written last.

STORE/<table>/<part>.parquet     live data, zstd
STORE/.known/<kind>/<part>…      what each recording says of its servers and tools, and what it is
                                 judged by: for the next run, which reuses what did not change
STORE/.work/                     work in progress of a run
STORE/store.json                 format, versions, the archive's files; absent while a run
                                 puts its parts in place, so a torn store is never opened
"""

import contextlib
import dataclasses
import datetime
import errno
import hashlib
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import mcptally
from mcptally.errors import StoreError
from mcptally.plain_files import require_plain_files
from mcptally.remote import is_remote, was_url
from mcptally.schema import TABLES, Recordings, Table

STORE_FORMAT: Final = 1
"""Version of the store's layout; a store of another version is rebuilt, never migrated."""

MANIFEST: Final = "store.json"
WORK: Final = ".work"
KNOWN: Final = ".known"

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


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `store.json` says.

    Raises:
        StoreError: no store there, one that a run left unfinished, or one of another version.
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
    if not path.is_file():
        if (folder / WORK).is_dir():
            raise StoreError(
                f"{folder}: a run was interrupted here; run mcptally score again with the same -o"
            )
        raise StoreError(f"{folder}: is not a store (it has no {MANIFEST})")
    try:
        manifest: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if isinstance(version, int | str) and version != STORE_FORMAT:
        raise StoreError(
            f"{folder}: is a store of format {version}, this mcptally reads format "
            f"{STORE_FORMAT}; rebuild it with: mcptally score ARCHIVE -o {folder}"
        )
    if version != STORE_FORMAT or not _is_ours(manifest):
        raise StoreError(
            f"{path}: is no {MANIFEST} of ours; rebuild with: mcptally score ARCHIVE -o {folder}"
        )
    if missing := [table.name for table in TABLES if not (folder / table.name).is_dir()]:
        raise StoreError(
            f"{folder}: has no table {', '.join(missing)}, as a store of another mcptally; rebuild "
            f"it with: mcptally score ARCHIVE -o {folder}"
        )
    for name, part in manifest.get("parts", {}).items():
        if not name.startswith(KNOWN):
            _require(folder, name, part["bytes"])
    known: dict[str, Any] = manifest
    return known


def _is_ours(manifest: dict[str, Any]) -> bool:
    """Whether what is read of a manifest has the form that it was written in."""
    sources, parts = manifest.get("archive"), manifest.get("parts", {})
    return (
        isinstance(sources, list)
        and all(isinstance(source, dict) for source in sources)
        and isinstance(parts, dict)
        and all(
            isinstance(part, dict) and type(part.get("bytes")) is int for part in parts.values()
        )
    )


def _require(folder: Path, name: str, size: int) -> None:
    """See that a Parquet file is there, and as long as it was written."""
    try:
        now = (folder / name).stat().st_size
    except OSError as error:
        now, what = -1, f"cannot be read: {error.strerror}"
    else:
        what = f"is damaged: {now} bytes long, and was written with {size}"
    if now != size:
        raise StoreError(
            f"{folder / name}: {what}; rebuild the store with: mcptally score ARCHIVE -o {folder}"
        )


def forgotten(folder: Path) -> list[dict[str, Any]]:
    """What was removed from a store on request, also if a run was killed while it replaced it."""
    for path in (folder / MANIFEST, *sorted((folder / WORK).glob(f"*/{MANIFEST}"))):
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, RecursionError):
            return list(json.loads(path.read_text(encoding="utf-8")).get("forgotten", ()))
    return []


@contextlib.contextmanager
def working(folder: Path) -> Iterator[Path]:
    """An empty work folder inside the store at `folder`, for this run alone; gone afterwards.

    Raises:
        StoreError: the folder holds something else than a store, or another run works in it.
    """
    new = not folder.exists()
    try:
        prepare(folder, alone=False)
        with alone_in(folder):
            try:
                yield prepare(folder)
            finally:
                # A store that was being replaced keeps the sign that it is one, unfinished.
                if (folder / MANIFEST).exists() or not any(
                    (folder / table.name).exists() for table in TABLES
                ):
                    shutil.rmtree(folder / WORK, ignore_errors=True)
    except BaseException as error:
        if new and folder.is_dir() and not {path.name for path in folder.iterdir()} - {WORK}:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError | pl.exceptions.ComputeError) and _is_full(error):
            left = "it is as it was before" if (folder / MANIFEST).exists() else "it is not there"
            raise StoreError(
                f"{folder}: cannot be written, {error}; {left}; make room and score again"
            ) from error
        raise


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


def prepare(folder: Path, *, alone: bool = True) -> Path:
    """A work folder inside the store at `folder`, which may not exist yet; empty if `alone`.

    Raises:
        StoreError: the folder holds something else than a store.
    """
    work = folder / WORK
    if folder.exists():
        if not folder.is_dir():
            raise StoreError(f"{folder}: is a file; name a folder for the store")
        known = any((folder / name).exists() for name in (MANIFEST, WORK))
        if not known and any(folder.iterdir()):
            raise StoreError(
                f"{folder}: is a folder with other things in it and no store; name a new folder"
            )
    past = forgotten(folder)
    if alone and work.exists():
        shutil.rmtree(work)
    # Of its own: a process that outlived a killed run writes where nobody looks.
    mine = work / secrets.token_hex(4)
    (mine / KNOWN).mkdir(parents=True)
    if past and not (folder / MANIFEST).exists():  # of a run that was killed: not to be lost
        (mine / MANIFEST).write_text(json.dumps({"forgotten": past}), encoding="utf-8")
    return mine


def write_part(work: Path, table: type[Table], part: str, frame: pl.DataFrame) -> int:
    """Write one part of a table into the work folder; gives the number of rows."""
    target = work / table.name / f"{part}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    data = table.frame(frame)
    order = data.select(pl.arg_sort_by(table.key, nulls_last=True).cast(pl.UInt32)).to_series()
    in_order = order.equals(pl.int_range(data.height, dtype=pl.UInt32, eager=True))
    schema = data.clear().to_arrow(compat_level=pl.CompatLevel.newest()).schema
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
) -> None:
    """Put the work folder's parts in the place of the store's; `store.json` comes last.

    Args:
        folder: the store.
        work: what `prepare` gave, with the parts written into it.
        sources: the archive's files.
        rows: name of each table → how many rows it has.
        made: what the rows were made by.
    """
    for table in TABLES:
        if not (work / table.name).exists():
            (work / table.name).mkdir()
            pq.write_table(
                pa.Table.from_batches([], table.frame(pl.DataFrame()).to_arrow().schema),
                work / table.name / "empty.parquet",
            )
    manifest = {
        "format": STORE_FORMAT,
        "mcptally": mcptally.__version__,
        "code": made.code,
        "rules": made.rules,
        "payloads": made.payloads,
        "scored_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "rows": dict(rows),
        "archive": [dataclasses.asdict(source) for source in sources],
        "as_scored": list(made.as_scored),
        "forgotten": list(made.forgotten),
        "parts": {
            name: {"bytes": path.stat().st_size, "sha256": digest_of(path)}
            for name, path in parts(work)
        },
    }
    # Before anything is taken away: what was forgotten stays known if this ends here.
    draft = work / MANIFEST
    draft.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    (folder / MANIFEST).unlink(missing_ok=True)
    for name in (*(table.name for table in TABLES), KNOWN):
        live = folder / name
        if live.exists():
            shutil.rmtree(live)
        (work / name).rename(live)
    os.replace(draft, folder / MANIFEST)  # noqa: PTH105  (the atomic one, by its name)
    shutil.rmtree(folder / WORK)


def parts(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every Parquet file of a store, or of a work folder that is to become one, by its name."""
    for name in (*(table.name for table in TABLES), KNOWN):
        for path in sorted((folder / name).rglob("*.parquet")):
            yield path.relative_to(folder).as_posix(), path


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
