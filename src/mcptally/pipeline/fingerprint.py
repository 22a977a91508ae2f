"""Decides whether rows of an earlier run can be reused, by comparing files, programs and stores.

A file is unchanged if its size, times and inode are the same, or else if its bytes are the same.
The program is unchanged if its source files and the versions of the packages that affect rows are
the same. A store's files are compared with the digests in `store.json`.
"""

import functools
import hashlib
import importlib.metadata
import io
import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import mcptally
from mcptally.errors import StoreError, UnreadableError
from mcptally.store.manifest import MANIFEST, how_to_rebuild, read_manifest
from mcptally.store.source_files import SourceFile, digest_of, identity_of
from mcptally.store.work_folder import Provenance
from mcptally.transcript.discover import path_of

DECIDING_PACKAGES: Final = (
    *("polars", "pyarrow", "numpy", "msgspec", "duckdb", "ahocorasick-rs"),
    *("jsonschema-rs", "jsonschema", "referencing"),
)
"""Packages whose versions may affect rows."""


@functools.cache
def code_digest() -> str:
    """Return a digest of this program's code and of the versions of packages that affect rows."""
    folder = Path(mcptally.__file__).parent
    code = hashlib.sha256(f"{mcptally.__version__} {platform.python_version()}".encode())
    for name in DECIDING_PACKAGES:
        try:
            code.update(f"{name} {_version(name)}\n".encode())
        except importlib.metadata.PackageNotFoundError:
            continue
    for name in deciding_files(folder):
        code.update(f"{name}\n".encode())
        with io.FileIO(f"{folder}/{name}") as file:  # a third faster than `Path.read_bytes`
            code.update(file.readall())
    return code.hexdigest()[:16]


def _version(name: str) -> str:
    """Return the version of an installed package.

    Raises:
        PackageNotFoundError: the package is not installed.
    """
    installed = importlib.metadata.distribution(name)
    # Avoid `installed.version`: it parses all metadata as e-mail, which takes 1 ms per package.
    found = _VERSION.search(installed.read_text("METADATA") or "")
    return found[1] if found else installed.version


_VERSION: Final = re.compile("^Version: (.+)$", re.MULTILINE)


def deciding_files(folder: Path) -> list[str]:
    """Return the relative paths of the program's files in `folder` that may affect rows."""
    names = []
    for at, folders, files in os.walk(folder):
        inside = f"{at}{os.sep}"[len(str(folder)) + 1 :].replace(os.sep, "/")
        folders[:] = [each for each in folders if f"{inside}{each}/" not in _WITHOUT_EFFECT]
        names += [inside + name for name in files if name.endswith((".py", ".toml", ".json"))]
    return sorted(
        name
        for name in names
        if not (name.startswith(_WITHOUT_EFFECT) or name.endswith("/compiled.json"))
    )


_WITHOUT_EFFECT: Final = (
    *("cli/", "maintenance/", "evaluation/", "gates/", "output/", "analytics/"),
    *("importers/", "record/", "pytest_plugin.py"),
    *(f"review/{name}.py" for name in ("estimates", "export", "items", "program")),
    *("review/sample.py", "review/session.py"),
    *("pipeline/engines/__init__.py", "pipeline/engines/dask"),
    *("transcript/check.py", "transcript/redact.py", "transcript/remote.py"),
    *("store/remote_copy.py", "store/remote_folder.py", "store/plain_files.py"),
)
"""Modules that do not affect rows: they write transcripts, read stores or distribute work."""


def reuse_blocker(folder: Path, manifest: Mapping[str, Any], made: Provenance) -> str | None:
    """Return why a run with provenance `made` cannot reuse a store's rows, or None if it can."""
    if manifest.get("code") != made.code:
        return "another version of mcptally, or of a package that it judges with, made it"
    if manifest.get("rules") != made.rules:
        return "it was made with other rules or scenarios"
    if manifest.get("selection") != made.selection:
        return "it was made from another selection of servers, tools or time"
    if manifest.get("payloads") != made.payloads:
        return "it was made with" + ("out" if made.payloads else "") + " payloads"
    if wrong := damaged(folder, manifest):
        return f"{wrong[0]} changed since it was written"
    return None


def damaged(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """Return the names of a store's live files that are missing or were changed after writing."""
    return sorted(
        name
        for name, part in manifest["parts"].items()
        if not _has_digest(folder / name, part["digest"])
    )


def refuse_damaged(names: Iterable[str]) -> None:
    """Check that no file of a store differs from its digest; skip `names` that are not stores.

    Raises:
        StoreError: a store's file is damaged; the message names it and says what to do.
    """
    for folder in map(Path, names):
        # A name may be SQL that is too long for a path. os.path.isfile then returns False, but
        # Path.is_file raises an error.
        if not os.path.isfile(folder / MANIFEST):  # noqa: PTH113
            continue
        manifest = read_manifest(folder)
        if wrong := damaged(folder, manifest):
            raise StoreError(
                f"{folder / wrong[0]}: is damaged (it changed since it was written); "
                f"{how_to_rebuild(folder, manifest)}"
            )


def _has_digest(path: Path, digest: str) -> bool:
    try:
        return digest_of(path) == digest
    except OSError:
        return False


def is_same(file: str | Path, source: SourceFile) -> bool:
    """Return whether a file is unchanged since scoring, by size, times and inode or by bytes."""
    if not source.whole:
        return False
    try:
        size, *stat = identity_of(file)
        if size != source.size:
            return False
        return tuple(stat) == source.stat or digest_of(path_of(file)) == source.digest
    except (OSError, UnreadableError):
        return False
