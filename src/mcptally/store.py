"""A store on disk: one Parquet dataset a table, and `store.json`, which is written last.

STORE/<table>/<part>.parquet     live data, zstd
STORE/.work/                     work in progress of a run
STORE/store.json                 format, versions, the archive's files; absent while a run
                                 puts its parts in place, so a torn store is never opened
"""

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import mcptally
from mcptally.errors import StoreError
from mcptally.schema import TABLES, Table

STORE_FORMAT: Final = 1
"""Version of the store's layout; a store of another version is rebuilt, never migrated."""

MANIFEST: Final = "store.json"
WORK: Final = ".work"

PAYLOAD: Final = frozenset({"arguments", "response", "text", "error_text"})
"""Columns that hold what was said; dictionaries and statistics do not pay for them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A file of the archive as it was when it was read."""

    file: str
    size: int
    sha256: str


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `store.json` says.

    Raises:
        StoreError: no store there, one that a run left unfinished, or one of another version.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise StoreError(
            f"{folder}: no such store; make one with: mcptally score ARCHIVE -o {folder}"
        )
    if not path.is_file():
        if (folder / WORK).is_dir():
            raise StoreError(
                f"{folder}: a run was interrupted here; run mcptally score again with the same -o"
            )
        raise StoreError(f"{folder}: is not a store (it has no {MANIFEST})")
    try:
        manifest: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error
    if not isinstance(manifest, dict) or "format" not in manifest or "archive" not in manifest:
        raise StoreError(
            f"{path}: is no {MANIFEST} of ours; rebuild with: mcptally score ARCHIVE -o {folder}"
        )
    if manifest["format"] != STORE_FORMAT:
        raise StoreError(
            f"{folder}: is a store of format {manifest['format']}, this mcptally reads format "
            f"{STORE_FORMAT}; rebuild it with: mcptally score ARCHIVE -o {folder}"
        )
    if missing := [table.name for table in TABLES if not (folder / table.name).is_dir()]:
        raise StoreError(
            f"{folder}: has no table {', '.join(missing)}, as a store of another mcptally; rebuild "
            f"it with: mcptally score ARCHIVE -o {folder}"
        )
    known: dict[str, Any] = manifest
    return known


@contextlib.contextmanager
def working(folder: Path) -> Iterator[Path]:
    """An empty work folder inside the store at `folder`, for this run alone; gone afterwards.

    Raises:
        StoreError: the folder holds something else than a store, or another run works in it.
    """
    new = not folder.exists()
    try:
        prepare(folder, alone=False)
        with _alone_in(folder):
            try:
                yield prepare(folder)
            finally:
                # A store that was being replaced keeps the sign that it is one, unfinished.
                if (folder / MANIFEST).exists() or not any(
                    (folder / table.name).exists() for table in TABLES
                ):
                    shutil.rmtree(folder / WORK, ignore_errors=True)
    except BaseException:
        if new and not any(path for path in folder.glob("*") if path.name != WORK):
            shutil.rmtree(folder, ignore_errors=True)
        raise


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
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
    if alone and work.exists():
        shutil.rmtree(work)
    # Of its own: a process that outlived a killed run writes where nobody looks.
    mine = work / secrets.token_hex(4)
    mine.mkdir(parents=True)
    return mine


def write_part(work: Path, table: type[Table], part: str, frame: pl.DataFrame) -> int:
    """Write one part of a table into the work folder; gives the number of rows."""
    target = work / table.name / f"{part}.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    data = table.frame(frame).sort(table.key, nulls_last=True)
    arrow = data.to_arrow(compat_level=pl.CompatLevel.newest())
    plain = [name for name in arrow.column_names if name not in PAYLOAD]
    pq.write_table(
        arrow,
        target,
        compression="zstd",
        compression_level=3,
        use_dictionary=plain,
        write_statistics=plain,
        row_group_size=50_000,
    )
    return data.height


def publish(
    folder: Path, work: Path, *, sources: Iterable[Source], rows: Mapping[str, int], rules: str
) -> None:
    """Put the work folder's parts in the place of the store's; `store.json` comes last."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for table in TABLES:
        live = folder / table.name
        if live.exists():
            shutil.rmtree(live)
        made = work / table.name
        if made.exists():
            made.rename(live)
        else:
            live.mkdir()
            pq.write_table(
                pa.Table.from_batches([], table.frame(pl.DataFrame()).to_arrow().schema),
                live / "empty.parquet",
            )
    manifest = {
        "format": STORE_FORMAT,
        "mcptally": mcptally.__version__,
        "rules": rules,
        "scored_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "rows": dict(rows),
        "archive": [dataclasses.asdict(source) for source in sources],
    }
    draft = work / MANIFEST
    draft.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, folder / MANIFEST)  # noqa: PTH105  (the atomic one, by its name)
    shutil.rmtree(folder / WORK)


def source_of(path: Path) -> Source:
    """Size and SHA-256 of a file of the archive."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Source(str(path), path.stat().st_size, digest)
