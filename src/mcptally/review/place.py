"""Locates the file with the answers about an archive: `reviews.jsonl` in the archive's folder."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mcptally.errors import UnreadableError, UsageError, as_argument
from mcptally.transcript.discover import REVIEWS
from mcptally.transcript.remote import is_remote, url_of_path


def reviews_file_of(files: Iterable[str | Path], given: str | Path | None = None) -> Path | None:
    """Return the file with answers about these transcripts. A file given by the user must exist.

    Raises:
        UnreadableError: the given file does not exist.
    """
    if given is not None:
        if not Path(given).is_file():
            raise UnreadableError(f"{given}: no such file of answers; mcptally review makes one")
        return Path(given)
    return _beside(files)


def _beside(files: Iterable[str | Path]) -> Path | None:
    """Return `reviews.jsonl` in the folder that contains these files; None for remote files."""
    names = {str(path): path for path in files}
    folders = {name[: name.rfind(os.sep) + 1]: path for name, path in names.items()}
    if not folders or any(is_remote(path) or url_of_path(Path(path)) for path in folders.values()):
        return None
    try:
        return Path(os.path.commonpath(folders)) / REVIEWS
    except ValueError:  # relative and absolute paths are mixed, or the paths are on several drives
        return None


def from_store(file: Path | None, store: Path | None) -> str | None:
    """Return a file's path relative to the store's folder, for the store's manifest.

    With a relative path, the file is found from any working directory, even after store and archive
    are moved together. For a remote store, which has no folder, the path is absolute.
    """
    if file is None:
        return None
    if store is None:
        return str(file.resolve())
    try:
        return os.path.relpath(file.resolve(), store.resolve())
    except ValueError:  # the file is on another drive
        return str(file.resolve())


def file_of_store(manifest: Mapping[str, Any], store: Path) -> Path | None:
    """Return the path of the answers file named in a store's manifest; the file may be missing."""
    name = manifest.get("reviews_file")
    if not name:
        return None
    place = Path(os.path.normpath(store.resolve() / name))
    return place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place


def file_for_answers(manifest: Mapping[str, Any], given: str | Path | None, store: Path) -> Path:
    """Return the path of the file to which answers about a store's calls are written.

    Args:
        manifest: the store's manifest.
        given: a file that the user named.
        store: the folder of the store, named in error messages.

    Raises:
        UsageError: no file is given, and the archive's folder is not writable.
    """
    place = Path(given) if given is not None else file_of_store(manifest, store)
    if place is None or not os.access(place.parent, os.W_OK):
        where = f"{place.parent} cannot be written to" if place else "it is not in a local folder"
        raise UsageError(
            f"{as_argument(store)}: answers are kept beside the archive, and {where}; name a file "
            "in another folder with --reviews FILE"
        )
    if place.exists() and not os.access(place, os.W_OK):
        raise UsageError(f"{place}: cannot be written; name another file with --reviews FILE")
    return place
