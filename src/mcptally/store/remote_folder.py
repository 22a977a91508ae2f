"""Lists, uploads, downloads and removes the files in a folder at a URL."""

import datetime
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mcptally.transcript.digest import new_digest
from mcptally.transcript.remote import changed_at, is_s3, reaching, resolve


def list_names(url: str) -> list[str]:
    """Return the paths of all files under a URL, relative to the URL and sorted.

    Raises:
        McptallyError: the URL cannot be reached.
    """
    return sorted(ages(url))


def upload(folder: Path, url: str, parts: Sequence[str]) -> None:
    """Upload files from a folder to the same relative paths under a URL; each upload is atomic.

    Raises:
        McptallyError: the URL cannot be reached.
    """
    system, path = resolve(url)
    if parts:
        with reaching(url):
            if not is_s3(url):  # S3 has no folders to create
                for parent in sorted({f"{path}/{name}".rpartition("/")[0] for name in parts}):
                    system.makedirs(parent, exist_ok=True)
            system.put([str(folder / name) for name in parts], [f"{path}/{name}" for name in parts])


def version(url: str, name: str) -> str | None:
    """Return the version of the file `name` under a URL: its ETag on S3, else its digest.

    The version of a missing file is None.

    Raises:
        McptallyError: the URL cannot be reached.
    """
    system, path = resolve(url)
    with reaching(f"{url}/{name}"):
        system.invalidate_cache()
        try:
            if is_s3(url):
                return str(system.info(f"{path}/{name}")["ETag"])
            return new_digest(system.cat_file(f"{path}/{name}")).hexdigest()
        except FileNotFoundError:
            return None


def upload_if_unchanged(file: Path, url: str, name: str, *, before: str | None) -> bool:
    """Upload a file, provided that the file at the URL still has the version `before`.

    On S3 the request is conditional (`If-Match`, `If-None-Match`). Other protocols have no
    conditional requests: the file is always uploaded.

    Args:
        file: the local file.
        url: the URL of the folder.
        name: the file's path relative to the URL.
        before: an earlier result of `version`.

    Returns:
        Whether the file was uploaded.

    Raises:
        McptallyError: the URL cannot be reached.
    """
    system, path = resolve(url)
    condition = {"mode": "create"} if before is None else {"IfMatch": before}
    with reaching(f"{url}/{name}"):
        try:
            system.pipe_file(
                f"{path}/{name}", file.read_bytes(), **(condition if is_s3(url) else {})
            )
        except OSError as error:
            cause = getattr(error.__cause__, "response", {})
            if cause.get("Error", {}).get("Code") in _REFUSED:
                return False
            raise
    return True


_REFUSED: Final = frozenset(
    {"PreconditionFailed", "412", "ConditionalRequestConflict", "NoSuchKey"}
)
"""Error codes of S3 for a conditional PUT whose condition is not met."""


def ages(url: str) -> dict[str, datetime.timedelta]:
    """Map the relative path of each file under a URL to the file's age; zero if unknown.

    Raises:
        McptallyError: the URL cannot be reached.
    """
    system, path = resolve(url)
    with reaching(url):
        system.invalidate_cache()
        found = system.find(path, detail=True)
    base = path.rstrip("/") + "/"
    now = time.time()
    return {
        str(name).removeprefix(base): datetime.timedelta(seconds=max(0, now - changed_at(about)))
        for name, about in found.items()
        if str(name).startswith(base)
    }


def download(url: str, folder: Path, parts: Sequence[str]) -> None:
    """Download files with these relative paths from a URL to a folder.

    Raises:
        McptallyError: the URL cannot be reached.
    """
    system, path = resolve(url)
    for name in parts:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    if parts:
        with reaching(url):
            system.get([f"{path}/{name}" for name in parts], [str(folder / name) for name in parts])


def remove(url: str, parts: Sequence[str]) -> None:
    """Remove the files with these relative paths under a URL.

    Raises:
        McptallyError: the URL cannot be reached.
    """
    system, path = resolve(url)
    if parts:
        with reaching(url):
            system.rm([f"{path}/{name}" for name in parts])
