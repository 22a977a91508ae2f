"""Handles stores at URLs: a run works on a local copy, which is uploaded at the end.

As in a local store, new files get new names, replacing `store.json` makes them live, and files that
are no longer listed are removed afterwards. A bucket cannot be locked. On S3 the upload of
`store.json` is a conditional PUT: it fails if another run has published since the copy was made. On
other services, the version of `store.json` is checked immediately before the upload.
"""

import contextlib
import datetime
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from mcptally.errors import StoreError, UsageError
from mcptally.store import remote_folder
from mcptally.store.manifest import MANIFEST, SUMMARIES, WORK
from mcptally.store.source_files import digest_of
from mcptally.tables.all_tables import TABLES
from mcptally.transcript import remote

LEFT_OVER: Final = datetime.timedelta(days=1)
"""Age above which unlisted files are removed; newer files may belong to an ongoing upload."""


@contextlib.contextmanager
def local_copy(out: str | Path, *, full: bool = False) -> Iterator[Path]:
    """Yield a local folder in which a run can work on the store at `out`.

    For a folder, this is `out` itself. For a URL, it is a local copy, which is uploaded at the end.

    Args:
        out: a folder or a URL.
        full: whether the run rebuilds the store without reusing rows.

    Raises:
        StoreError: the URL contains something other than a store, or another run published
            meanwhile.
        UsageError: the protocol's package is not installed, or `out` is a `Path` made from a URL.
        McptallyError: the URL cannot be reached.
    """
    if not (isinstance(out, str) and remote.is_url(out)):
        if url := remote.url_of_path(Path(out)):
            raise UsageError(
                f"{url}: a URL is given as text; a Path means a local folder of this name"
            )
        yield Path(out)
        return
    url = out.rstrip("/")
    remote.resolve(url)
    with tempfile.TemporaryDirectory(prefix="mcptally-") as parent:
        folder = Path(parent) / "store"
        before = _download(url, folder, full=full)
        yield folder
        _publish(url, folder, before)


class _Downloaded(NamedTuple):
    """The state of the store at a URL when it was downloaded."""

    version: str | None
    """Version of `store.json`; None if it did not exist."""
    files: dict[str, str]
    """Maps the names of the downloaded files to their digests."""
    listed: set[str]
    """Names of the files that `store.json` lists."""


def _download(url: str, folder: Path, *, full: bool) -> _Downloaded:
    """Download the store at a URL to a folder; with `full`, download no rows."""
    there = remote_folder.list_names(url)
    if MANIFEST not in there:
        if others := [name for name in there if not _is_of_store(name)]:
            raise StoreError(
                f"{url}: is not a store and has other files ({others[0]}); name a new place"
            )
        return _Downloaded(None, {}, set())
    # Get the version before the copy, so that the PUT at the end fails if another run publishes
    # now.
    version = remote_folder.version(url, MANIFEST)
    remote_folder.download(url, folder, [MANIFEST])
    listed = _listed(folder)
    wanted = [] if full else sorted(listed & set(there))
    remote_folder.download(url, folder, wanted)
    # Compute the digests. With the digests in store.json, a damaged file would not be uploaded
    # again.
    return _Downloaded(version, {name: digest_of(folder / name) for name in wanted}, listed)


def _listed(folder: Path) -> set[str]:
    """Return the names of files that `store.json` lists, even if another version wrote it."""
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, RecursionError):
        names = set(json.loads((folder / MANIFEST).read_bytes()).get("parts", {}))
        return {name for name in names if _is_of_store(name) and ".." not in name.split("/")}
    return set()


def _publish(url: str, folder: Path, before: _Downloaded) -> None:
    parts = json.loads((folder / MANIFEST).read_bytes())["parts"]
    new = sorted(parts.keys() - before.files.keys())
    remote_folder.upload(folder, url, new)
    if missing := parts.keys() - set(remote_folder.list_names(url)):
        remote_folder.remove(url, [name for name in new if name not in missing])
        raise StoreError(
            f"{url}: {min(missing)} disappeared after its upload; is another run writing there? "
            "score again"
        )
    # Check the version before the PUT, because not every protocol has a conditional PUT.
    if remote_folder.version(
        url, MANIFEST
    ) != before.version or not remote_folder.upload_if_unchanged(
        folder / MANIFEST, url, MANIFEST, before=before.version
    ):
        remote_folder.remove(url, new)  # the files of another run have other names
        raise StoreError(
            f"{url}: another run has published there since this one began, and its store was kept; "
            "score again"
        )
    _sweep(url, parts.keys(), before.listed)


def _sweep(url: str, listed: set[str], before: set[str]) -> None:
    """Remove the previous store's files, and old files that unfinished runs have left behind."""
    ages = remote_folder.ages(url)
    old = {name for name, age in ages.items() if _is_of_store(name) and age > LEFT_OVER}
    unused = ((before & ages.keys()) | old) - listed - {MANIFEST}
    remote_folder.remove(url, sorted(unused))


_STORE_FOLDERS: Final = frozenset({*(table.name for table in TABLES), SUMMARIES, WORK, MANIFEST})


def _is_of_store(name: str) -> bool:
    """Return whether a file with this relative name could belong to a store."""
    return name.partition("/")[0] in _STORE_FOLDERS
