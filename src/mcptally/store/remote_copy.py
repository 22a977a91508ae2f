"""A store behind a URL: a copy of it is worked on here, and published there at the end.

As in a folder: new files get new names, one PUT of `store.json` makes them the store, and the files
that it lists no longer are removed afterwards. Nothing locks a bucket. On S3 the PUT is
conditional: it fails if another run has published since the copy was made. Elsewhere `store.json`
is looked at right before it is written.
"""

import contextlib
import datetime
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from mcptally.errors import StoreError, UsageError
from mcptally.store.files import KNOWN, MANIFEST, WORK, digest_of
from mcptally.tables.all_tables import TABLES
from mcptally.transcript import remote

LEFT_OVER: Final = datetime.timedelta(days=1)
"""Files that no manifest lists are removed when they are older: another run may be putting them."""


@contextlib.contextmanager
def local_copy(out: str | Path, *, full: bool = False) -> Iterator[Path]:
    """The folder to work on for the store at `out`: itself, or a copy that is put there at the end.

    Args:
        out: a folder or a URL.
        full: whether nothing of the store that is there will be used.

    Raises:
        StoreError: something else than a store is there, or another run published meanwhile.
        UsageError: what the protocol takes is not installed, or the URL was made a `Path`.
        McptallyError: it cannot be reached.
    """
    if not (isinstance(out, str) and remote.is_url(out)):
        if url := remote.was_url(Path(out)):
            raise UsageError(
                f"{url}: a URL is given as text: as a Path it is a folder of this name"
            )
        yield Path(out)
        return
    url = out.rstrip("/")
    remote.place(url)
    with tempfile.TemporaryDirectory(prefix="mcptally-") as parent:
        folder = Path(parent) / "store"
        before = _take(url, folder, full=full)
        yield folder
        _publish(url, folder, before)


class _Before(NamedTuple):
    """What was there when the copy was made."""

    version: str | None
    """Of `store.json`; None: there was none."""
    files: dict[str, str]
    """The files that were copied, with digests of what was there."""
    listed: set[str]
    """The files that `store.json` lists."""


def _take(url: str, folder: Path, *, full: bool) -> _Before:
    """Copy the store that is there."""
    there = remote.names(url)
    if MANIFEST not in there:
        if others := [name for name in there if not _is_ours(name)]:
            raise StoreError(
                f"{url}: holds other things and no store ({others[0]}); name a new place"
            )
        return _Before(None, {}, set())
    # The version first: if another run publishes in between, the PUT at the end fails.
    version = remote.version(url, MANIFEST)
    remote.fetch(url, folder, [MANIFEST])
    listed = _listed(folder)
    wanted = [] if full else sorted(listed & set(there))
    remote.fetch(url, folder, wanted)
    # Of what is there, not of what store.json says is there: what was damaged is put anew.
    return _Before(version, {name: digest_of(folder / name) for name in wanted}, listed)


def _listed(folder: Path) -> set[str]:
    """The files of ours that `store.json` lists, whatever version wrote it."""
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, RecursionError):
        names = set(json.loads((folder / MANIFEST).read_bytes()).get("parts", {}))
        return {name for name in names if _is_ours(name) and ".." not in name.split("/")}
    return set()


def _publish(url: str, folder: Path, before: _Before) -> None:
    parts = json.loads((folder / MANIFEST).read_bytes())["parts"]
    new = sorted(parts.keys() - before.files.keys())
    remote.put(folder, url, new)
    if missing := parts.keys() - set(remote.names(url)):
        remote.remove(url, [name for name in new if name not in missing])
        raise StoreError(
            f"{url}: {min(missing)} is gone again; is another run writing there? score again"
        )
    # Looked at first for those that know no condition of a PUT.
    if remote.version(url, MANIFEST) != before.version or not remote.put_over(
        folder / MANIFEST, url, MANIFEST, before=before.version
    ):
        remote.remove(url, new)  # nobody else has these names
        raise StoreError(
            f"{url}: another run has published there since this one began; the store is as that "
            "run made it; score again"
        )
    _sweep(url, parts.keys(), before.listed)


def _sweep(url: str, listed: set[str], before: set[str]) -> None:
    """Remove the files of the store before, and old ones that runs left which did not end."""
    ages = remote.ages(url)
    old = {name for name, age in ages.items() if _is_ours(name) and age > LEFT_OVER}
    gone = ((before & ages.keys()) | old) - listed - {MANIFEST}
    remote.remove(url, sorted(gone))


_OURS: Final = frozenset({*(table.name for table in TABLES), KNOWN, WORK, MANIFEST})


def _is_ours(name: str) -> bool:
    """Whether what lies there is of a store."""
    return name.partition("/")[0] in _OURS
