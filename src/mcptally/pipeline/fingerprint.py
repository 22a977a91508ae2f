"""Whether rows that were made before can stand beside those that are made now.

A file is the same by what its folder says of it, or by its bytes; a program by its own files and
by the versions of what it judges with; a store by the digests in its `store.json`.
"""

import functools
import hashlib
import importlib.metadata
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import mcptally
from mcptally.errors import StoreError, UnreadableError
from mcptally.store import files as store_files
from mcptally.store.files import Made, Source

JUDGES: Final = (
    *("polars", "pyarrow", "numpy", "msgspec", "duckdb", "ahocorasick-rs"),
    *("jsonschema-rs", "jsonschema", "jsonschema-specifications", "referencing"),
)
"""Packages whose version may change what a row says."""


@functools.cache
def code_digest() -> str:
    """Digest of this program and what it judges with: rows of another are made again."""
    folder = Path(mcptally.__file__).parent
    found = hashlib.sha256(f"{mcptally.__version__} {platform.python_version()}".encode())
    for name in JUDGES:
        try:
            found.update(f"{name} {importlib.metadata.version(name)}\n".encode())
        except importlib.metadata.PackageNotFoundError:
            continue
    for path in judging(folder):
        found.update(f"{path.relative_to(folder).as_posix()}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def judging(folder: Path) -> list[Path]:
    """The files of this program, which lies in `folder`, that may change what a row says."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in {".py", ".toml", ".json"}
        and not path.relative_to(folder).as_posix().startswith(_WITHOUT_EFFECT)
    ]


_WITHOUT_EFFECT: Final = (
    *("cli/", "maintenance/", "evaluation/", "gates/", "output/", "analytics/"),
    *("importers/", "record/"),
    *("pipeline/engines/__init__.py", "pipeline/engines/dask"),
    *("transcript/check.py", "transcript/redact.py", "transcript/remote.py"),
    *("store/remote_copy.py", "store/plain_files.py"),
)
"""Places that write transcripts, read stores or distribute work: they change no row of a table."""


def reuse_blocker(folder: Path, manifest: Mapping[str, Any], made: Made) -> str | None:
    """Why rows of a store cannot stand beside rows that are made so; None: they can."""
    if manifest.get("code") != made.code:
        return "another version of mcptally, or of what it judges with, made it"
    if manifest.get("rules") != made.rules:
        return "the rules or scenarios are others"
    if manifest.get("payloads") != made.payloads:
        return "it was made with" + ("out" if made.payloads else "") + " payloads"
    if wrong := damaged(folder, manifest):
        return f"{wrong[0]} is not as it was written"
    return None


def damaged(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Names of a store's live files that are not as they were written, or not there."""
    return sorted(
        name for name, part in manifest["parts"].items() if not _is(folder / name, part["sha256"])
    )


def refuse_damaged(names: Iterable[str]) -> None:
    """See that those of these names that are stores are as they were written.

    Raises:
        StoreError: one is not; it says which file, and what to do.
    """
    for folder in map(Path, names):
        if not (folder / store_files.MANIFEST).is_file():
            continue
        manifest = store_files.read_manifest(folder)
        if wrong := damaged(folder, manifest):
            raise StoreError(
                f"{folder / wrong[0]}: is damaged: not as it was written; "
                f"{store_files.how_to_rebuild(folder, manifest)}"
            )


def _is(path: Path, sha256: str) -> bool:
    try:
        return store_files.digest_of(path) == sha256
    except OSError:
        return False


def is_same(path: Path, source: Source) -> bool:
    """Whether a file is as it was when it was scored: by what its folder says, or by its bytes."""
    if not source.whole:
        return False
    try:
        size, *stat = store_files.look(path).identity
        if size != source.size:
            return False
        return tuple(stat) == source.stat or store_files.digest_of(path) == source.sha256
    except (OSError, UnreadableError):
        return False
