"""Reads, checks and replaces a store's manifest, `store.json`, which lists the live files.

STORE/store.json                            format, versions, files of the archive, live files
STORE/<table>/<number>-<run>.parquet        rows, zstd
STORE/.known/<kind>/<number>-<run>.parquet  summaries of partitions, from which the next run finds
                                            out which rows it can reuse
STORE/.masked/<rules>/<table>/…             copies of tables without secrets, for untrusted SQL
STORE/.work/                                work in progress of a run

Files are written once and never changed. A run adds files under new names, replaces `store.json`
atomically, and removes files that are no longer listed. So a killed run leaves either the old or
the new store; the next run removes leftover files.
"""

import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mcptally.disk_space import sync
from mcptally.errors import StoreError, as_argument
from mcptally.store.plain_files import require_plain_files
from mcptally.store.source_files import SourceFile
from mcptally.tables.all_tables import TABLES
from mcptally.transcript.remote import how_to_copy, url_of_path

STORE_FORMAT: Final = 5
"""Version of the store's layout. A store in another version's layout is rebuilt, not migrated."""

MANIFEST: Final = "store.json"
WORK: Final = ".work"
SUMMARIES: Final = ".known"
MASKED: Final = ".masked"
"""Name of the folder with copies of tables without secrets; see `analytics.masked_tables`."""
VIEWS: Final = "mcptally.duckdb"
"""Name of the file with views of the live files for DuckDB clients; see `analytics.duckdb_file`."""


def read_manifest(folder: Path, *, archive: bool = True) -> dict[str, Any]:
    """Read and check `store.json`, and return its content.

    Args:
        folder: the store.
        archive: whether to parse the member `archive`, a list of `SourceFile`. For a million files,
            this takes 1 s and 0.6 GB.

    Raises:
        StoreError: there is no store, its first run did not end, it has another format, a file is
            missing or damaged, or its path is not UTF-8 or begins with `~`.
    """
    path = folder / MANIFEST
    require_plain_path(folder)
    if not folder.is_dir():
        if url := url_of_path(folder):
            raise StoreError(
                f"{url}: a store must be in a local folder to be queried; "
                + how_to_copy(url, folder.name)
            )
        raise StoreError(
            f"{folder}: no such store; make one with: "
            f"mcptally score ARCHIVE -o {as_argument(folder)}"
        )
    require_plain_files(folder)
    while True:
        manifest = _checked(folder, _load(path, archive=archive))
        try:
            for name, part in manifest["parts"].items():
                if not name.startswith(SUMMARIES):
                    _require(folder, manifest, name, part["bytes"])
        except StoreError:
            # If a run has replaced the store in the meantime, read the new manifest.
            if _load(path, archive=archive) == manifest:
                raise
        else:
            return manifest


def _load(path: Path, *, archive: bool = True) -> Any:
    try:
        data = path.read_bytes()
        try:
            members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:  # the text is valid JSON, but not an object
            return json.loads(data)
        sources = members.pop("archive", msgspec.Raw(b"[]"))
        manifest = {name: json.loads(bytes(member)) for name, member in members.items()}
        return manifest | {"archive": _sources(sources)} if archive else manifest
    except FileNotFoundError as error:
        folder = path.parent
        if (folder / WORK).is_dir():
            raise StoreError(
                f"{folder}: the first run into this store has not ended; if no run is active, "
                f"start the same command again: {_writing_commands(folder)}"
            ) from error
        raise StoreError(f"{folder}: is not a store{_make_one(folder)}") from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"{path}: cannot be read: {error}; start the command that made the store again: "
            + _writing_commands(path.parent)
        ) from error


def _make_one(folder: Path) -> str:
    """Return advice on how to make a store, for a message about a folder that is not a store."""
    holds = any(path.suffixes[:1] == [".jsonl"] for path in folder.iterdir())
    archive = as_argument(folder) if holds else "ARCHIVE"
    what = " but contains recordings" if holds else ""
    return f"{what}; make one with: mcptally score {archive} -o STORE"


def require_plain_path(folder: Path) -> None:
    """Check that the absolute path of a store is UTF-8, and that it does not begin with `~`.

    Polars and DuckDB take paths as text, in which `~` means the home folder.

    Raises:
        StoreError: the path is not UTF-8 or begins with `~`.
    """
    if folder.parts[:1] and folder.parts[0].startswith("~"):
        raise StoreError(
            f"{folder}: the shell has not replaced ~ by the home folder; write $HOME, or the "
            "absolute path"
        )
    try:
        str(folder.absolute()).encode()
    except UnicodeEncodeError:
        raise StoreError(
            f"{folder.absolute()}: is not UTF-8, which the path of a store must be; name another "
            "folder"
        ) from None


def _sources(data: msgspec.Raw) -> list[SourceFile] | None:
    """Decode the list of the archive's files; return None if the JSON is anything else."""
    try:
        return msgspec.json.decode(data, type=list[SourceFile])
    except msgspec.ValidationError:
        return None


def _checked(folder: Path, manifest: Any) -> dict[str, Any]:
    """Check that this version can read a manifest, and return the manifest.

    Raises:
        StoreError: the manifest has another format, or is not a manifest.
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


def _writing_commands(folder: Path) -> str:
    """Return the two commands that write stores, for a message about a store of unknown origin."""
    out = as_argument(folder)
    return f"mcptally score ARCHIVE -o {out}, or mcptally merge STORES -o {out}"


def how_to_rebuild(folder: Path, manifest: Any) -> str:
    """Return the command that builds an unreadable store again, as advice in a message."""
    if isinstance(manifest, dict) and manifest.get("made_by") == "merge":
        return f"merge the stores again: mcptally merge STORES -o {as_argument(folder)}"
    return f"rebuild it with: mcptally score ARCHIVE -o {as_argument(folder)}"


LiveFiles = Mapping[str, list[Path]]
"""Maps the name of each table, and each folder of summaries, to its live files."""


def live_files(folder: Path, manifest: Mapping[str, Any]) -> LiveFiles:
    """Return the live files of each table and summary folder, in the order of the manifest.

    Every table has an entry.
    """
    files: dict[str, list[Path]] = {table.name: [] for table in TABLES}
    for name in manifest["parts"]:
        files.setdefault(name.rpartition("/")[0], []).append(folder / name)
    return files


_PART: Final = re.compile(rf"({re.escape(SUMMARIES)}/)?[a-z_]+/[A-Za-z0-9_-]+\.parquet")
"""Valid names of live files: paths relative to the store, in its folders."""


def _is_ours(manifest: dict[str, Any]) -> bool:
    """Return whether those members of the manifest that mcptally uses have the right types."""
    sources, parts = manifest.get("archive", []), manifest.get("parts")
    return (
        isinstance(sources, list)
        and isinstance(parts, dict)
        and all(
            _PART.fullmatch(name) and isinstance(part, dict) and type(part.get("bytes")) is int
            for name, part in parts.items()
        )
    )


def _require(folder: Path, manifest: Mapping[str, Any], name: str, size: int) -> None:
    """Check that a Parquet file exists and has the size that the manifest lists."""
    try:
        now = (folder / name).stat().st_size
    except OSError as error:
        now, what = -1, f"cannot be read: {error.strerror}"
    else:
        what = f"is damaged: it has {now} bytes and was written with {size}"
    if now != size:
        raise StoreError(f"{folder / name}: {what}; {how_to_rebuild(folder, manifest)}")


def listed_files(folder: Path) -> Collection[str]:
    """Return the names of the files that the manifest lists.

    Raises:
        StoreError: there is no manifest that this version can read.
    """
    manifest = _checked(folder, _load(folder / MANIFEST, archive=False))
    names: Collection[str] = manifest["parts"].keys()
    return names


def manifest_version(folder: Path) -> tuple[int, int]:
    """Return the manifest's inode and time, which change when a run replaces the store."""
    try:
        stat = (folder / MANIFEST).stat()
    except OSError:
        return (0, 0)
    return (stat.st_ino, stat.st_mtime_ns)


def has_views(folder: Path) -> bool:
    """Return whether `mcptally.duckdb` and the manifest belong together: their times are equal."""
    try:
        views, manifest = (folder / name for name in (VIEWS, MANIFEST))
        return views.stat().st_mtime_ns == manifest.stat().st_mtime_ns
    except OSError:
        return False


def views_are_current(folder: Path) -> bool:
    """Return whether `mcptally.duckdb` belongs to the current manifest and reads this folder."""
    try:
        # DuckDB stores the SQL of views uncompressed.
        return (
            has_views(folder) and place_in_views(folder).encode() in (folder / VIEWS).read_bytes()
        )
    except OSError:
        return False


def place_in_views(folder: Path) -> str:
    """Return the folder as it appears in the views of `mcptally.duckdb`: as an absolute pattern."""
    return f"{as_pattern(folder.resolve())}/"


def as_pattern(path: Path) -> str:
    """Return a glob pattern that matches only this path, because DuckDB reads paths as patterns."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))


_LINES: Final = 10_000
"""Number of the archive's files that are encoded together."""


def replace_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Replace `store.json` atomically and durably. The caller must hold the store's lock."""
    draft = folder / WORK / MANIFEST
    rest = {name: value for name, value in manifest.items() if name != "archive"}
    encoder = msgspec.json.Encoder()
    with draft.open("wb") as file:
        file.write(json.dumps(msgspec.to_builtins(rest), indent=1).removesuffix("\n}").encode())
        file.write(b',\n "archive": [')
        # Write one line per file of the archive: `json` would write one line per member and take
        # eight times as long.
        archive = manifest["archive"]
        for start in range(0, len(archive), _LINES):
            lines = encoder.encode_lines(archive[start : start + _LINES])
            file.write((b",\n  " if start else b"\n  ") + lines[:-1].replace(b"\n", b",\n  "))
        file.write(b"\n ]\n}\n")
    sync(draft)
    os.replace(draft, folder / MANIFEST)  # noqa: PTH105  (atomic)
    sync(folder)
