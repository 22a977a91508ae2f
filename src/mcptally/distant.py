"""A store behind a URL: a copy of it is worked on here, and put in its place at the end.

`store.json` is taken away first and written last, as in a folder, and what else lies there is left
alone; but nothing locks a bucket, so that two runs never write to one store at a time is for
whoever starts them to see to.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mcptally.errors import StoreError, UsageError
from mcptally.remote import fetch, is_url, names, place, put, remove, was_url
from mcptally.schema import TABLES
from mcptally.store import KNOWN, MANIFEST, WORK, digest_of


@contextlib.contextmanager
def at_hand(out: str | Path, *, full: bool = False) -> Iterator[Path]:
    """The folder to work on for the store at `out`: itself, or a copy that is put there at the end.

    Args:
        out: a folder or a URL.
        full: whether nothing of the store that is there will be used.

    Raises:
        StoreError: something else than a store is there, or came there meanwhile.
        UsageError: what the protocol takes is not installed, or the URL was made a `Path`.
        McptallyError: it cannot be reached.
    """
    if not (isinstance(out, str) and is_url(out)):
        if url := was_url(Path(out)):
            raise UsageError(
                f"{url}: a URL is given as text: as a Path it is a folder of this name"
            )
        yield Path(out)
        return
    url = out.rstrip("/")
    place(url)
    with tempfile.TemporaryDirectory(prefix="mcptally-") as parent:
        folder = Path(parent) / "store"
        before = _take(url, folder, full=full)
        yield folder
        _put_in_place(url, folder, before)


def _take(url: str, folder: Path, *, full: bool) -> dict[str, str]:
    """Copy the store that is there; gives what was copied, with digests."""
    there = names(url)
    if MANIFEST not in there:
        if others := [name for name in there if not _is_ours(name)]:
            raise StoreError(
                f"{url}: holds other things and no store ({others[0]}); name a new place"
            )
        return {}
    wanted = [name for name in there if _is_ours(name) and not name.startswith(f"{WORK}/")]
    wanted = [MANIFEST] if full else wanted
    fetch(url, folder, wanted)
    # Of what is there, not of what store.json says is there: what was damaged is put anew.
    return {name: digest_of(folder / name) for name in wanted}


def _put_in_place(url: str, folder: Path, before: dict[str, str]) -> None:
    manifest = json.loads((folder / MANIFEST).read_bytes())
    new = [name for name, digest in manifest["parts"].items() if before.get(name) != digest]
    remove(url, [MANIFEST] if MANIFEST in names(url) else [])
    put(folder, url, new)
    kept = manifest["parts"].keys()
    remove(url, [name for name in names(url) if _is_ours(name) and name not in kept])
    if missing := kept - set(names(url)):
        raise StoreError(
            f"{url}: {min(missing)} is gone again; is another run writing there? score again"
        )
    put(folder, url, [MANIFEST])


_OURS: Final = frozenset({*(table.name for table in TABLES), KNOWN, WORK, MANIFEST})


def _is_ours(name: str) -> bool:
    """Whether what lies there is of a store."""
    return name.partition("/")[0] in _OURS
