"""Manages a run's work folder: locks the store, publishes finished parts, removes old files."""

import contextlib
import datetime
import fcntl
import os
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import polars as pl

import mcptally
from mcptally.disk_space import is_full, sync
from mcptally.errors import StoreError
from mcptally.store.manifest import (
    MANIFEST,
    MASKED,
    STORE_FORMAT,
    SUMMARIES,
    VIEWS,
    WORK,
    has_views,
    listed_files,
    replace_manifest,
    require_plain_path,
)
from mcptally.store.parts import EMPTY, part_files, write_part
from mcptally.store.source_files import SourceFile, digest_of, unread_of
from mcptally.tables.all_tables import TABLES


class Provenance(msgspec.Struct, frozen=True):
    """How a store was made: with which rules, program, selection and reviews."""

    rules: str = "default"
    """Digest of the rules and scenarios in force."""
    payloads: bool = True
    code: str = ""
    """Digest of the program's code: another version may judge calls differently."""
    as_scored: Sequence[str] = ()
    """Recordings that should have been scored again, but whose files were not available."""
    made_by: str = "score"
    """The command that can rebuild the store: `score` or `merge`."""
    selection: Mapping[str, Any] | None = None
    """The part of the archive that was selected for scoring; None for the whole archive."""
    own_rules: str = ""
    """The user's rules as TOML text, which `show` needs to explain a call."""
    reviews_file: str | None = None
    """Path of the file with the reviewers' answers."""
    started_in: str | None = None
    """The folder to which the paths of the transcripts are relative."""
    reviews: Sequence[Any] = ()
    """The review answers that were applied to the rows."""


@contextlib.contextmanager
def working(folder: Path) -> Iterator[Path]:
    """Lock the store at `folder` for this run, and yield an empty work folder inside it.

    Raises:
        StoreError: the folder contains something other than a store, another run is using it,
            or the disk is full.
    """
    _require_store_or_empty(folder)
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder):
            _require_store_or_empty(folder)
            remove_unlisted(folder)
            try:
                yield create_work_folder(folder)
            finally:
                remove_unlisted(folder)
    except BaseException as error:
        if new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        if is_full(error, folder):
            left = "it is as it was before" if (folder / MANIFEST).exists() else "there is no store"
            raise StoreError(
                f"{folder}: cannot be written, the disk is full; {left}; free some space and start "
                "the command again"
            ) from error
        raise


def create_work_folder(folder: Path) -> Path:
    """Create a new work folder inside the store at `folder`."""
    # Use a new name: a process that outlives its run must not write into the next work folder.
    work = folder / WORK / secrets.token_hex(4)
    (work / SUMMARIES).mkdir(parents=True)
    return work


def _require_store_or_empty(folder: Path) -> None:
    """Check that a folder is empty, a store, or the remains of a store after a killed run.

    Raises:
        StoreError: the folder is something else, or its path is not UTF-8 or begins with `~`.
    """
    require_plain_path(folder)
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StoreError(f"{folder}: is a file; name a folder for the store")
    known = any((folder / name).exists() for name in (MANIFEST, WORK))
    if not known and any(folder.iterdir()):
        raise StoreError(f"{folder}: is not a store and has other files in it; name a new folder")


def remove_unlisted(folder: Path) -> list[Path]:
    """Remove the files that the manifest does not list, and return those that could not be removed.

    Unlisted files belong to the previous store or to killed runs. The caller must hold the store's
    lock. Without a readable manifest, only work folders are removed.
    """
    manifest = folder / MANIFEST
    listed: set[str] = set()
    if manifest.exists():
        try:
            listed = set(listed_files(folder))
        except StoreError:
            shutil.rmtree(folder / WORK, ignore_errors=True)
            return []
    left, old = [], list(_unlisted(folder, listed))
    if old and not has_views(folder):
        (folder / VIEWS).unlink(missing_ok=True)  # the views may refer to the removed files
    for path in old:
        try:
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        except OSError:  # the system does not permit removing the file
            left.append(path)
    shutil.rmtree(folder / WORK, ignore_errors=True)
    return left


def _unlisted(folder: Path, listed: Collection[str]) -> Iterator[Path]:
    """Yield the unlisted files in a store's folders, and each subfolder after its files."""
    for name in (*(table.name for table in TABLES), SUMMARIES, MASKED):
        place = folder / name
        if place.is_symlink():
            yield place
            continue
        for at, folders, files in os.walk(place, topdown=False):
            links = [each for each in folders if (Path(at) / each).is_symlink()]
            for path in (Path(at) / each for each in (*files, *links)):
                if _copied_from(path.relative_to(folder)).as_posix() not in listed:
                    yield path
            here = f"{_copied_from(Path(at).relative_to(folder)).as_posix()}/"
            if here != "./" and not any(part.startswith(here) for part in listed):
                yield Path(at)


def _copied_from(name: Path) -> Path:
    """Return the name of the file from which a masked copy was made; keep other names unchanged."""
    return Path(*name.parts[2:]) if name.parts[0] == MASKED else name


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a store for this process; the lock is released when the process exits."""
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


def publish(
    folder: Path,
    work: Path,
    *,
    sources: Iterable[SourceFile],
    rows: Mapping[str, int],
    made: Provenance,
    kept: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> None:
    """Move the parts from the work folder into the store, and replace the store's manifest.

    Readers see the previous store until `store.json` is replaced. The new files and the manifest
    are on disk when this function returns; `remove_unlisted` then removes the old files.

    Args:
        folder: the store.
        work: the folder from `working`, with the written parts.
        sources: the archive's files.
        rows: maps each table's name to its number of rows in the new store.
        made: how the rows were made.
        kept: maps files that stay in the store to their manifest entries.
    """
    kept_tables = {name.rpartition("/")[0] for name in kept}
    for table in TABLES:
        if table.name not in kept_tables and not any((work / table.name).glob("*.parquet")):
            write_part(work, table, EMPTY, pl.DataFrame())
    run = secrets.token_hex(4)
    new = {}
    folders: set[Path] = set()
    for name, path in part_files(work):
        target = folder / f"{name.removesuffix('.parquet')}-{run}.parquet"
        new[target.relative_to(folder).as_posix()] = {
            "bytes": path.stat().st_size,
            "digest": digest_of(path),
        }
        target.parent.mkdir(parents=True, exist_ok=True)
        sync(path)
        path.rename(target)
        folders |= {target.parent, target.parent.parent}
    for each in folders:
        sync(each)
    archive = list(sources)
    manifest = {
        "format": STORE_FORMAT,
        "mcptally": mcptally.__version__,
        **msgspec.structs.asdict(made),
        "scored_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "rows": dict(rows),
        "unread": unread_of(archive),
        "archive": archive,
        "parts": {**kept, **new},
    }
    replace_manifest(folder, manifest)
