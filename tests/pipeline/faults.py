"""Checks the state in which a store would be if a command were killed while changing it.

python -m tests.pipeline.faults                 `score` and `merge`, before every step

A step is a change of a file, seen by an audit hook before it happens (PEP 578). A process that is
killed before a step leaves the files in that state: a run of the command copies them.
"""

import collections
import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl

import mcptally as mt
from mcptally.analytics import duckdb_file
from tests.corpus import SAMPLES
from tests.stored_tables import tables
from tests.transcripts import call, exchange, opened, text, write

BEFORE: Final = [SAMPLES / "time.jsonl"]
AFTER: Final = [*BEFORE, SAMPLES / "git.jsonl.zst"]

CHANGES: Final = frozenset(
    {"os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.truncate", "os.symlink"}
)
"""Audit events of changes, in addition to `open` for writing."""

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


# --- commands --------------------------------------------------------------------


def _archive(folder: Path) -> list[Path]:
    """Two transcripts, each with two calls."""
    (folder / "archive").mkdir(parents=True)
    messages = (call(1, "gone"), text(1, "first"), call(2, "stays"), text(2, "second"))
    return [
        write(
            folder / "archive" / f"{name}.jsonl",
            [opened(name, server=name), *exchange(*messages, recording=name)],
        )
        for name in "ab"
    ]


def _build_score(folder: Path) -> None:
    first, _ = _archive(folder)
    mt.score([first], out=folder / "store")


def _score(folder: Path) -> None:
    mt.score(folder / "archive", out=folder / "store")


def _build_merge(folder: Path) -> None:
    first, second = _archive(folder)
    mt.score([first], out=folder / "store")
    mt.score([second], out=folder / "other")
    (folder / "archive").rename(folder / "elsewhere")


def _merge(folder: Path) -> None:
    mt.merge_stores([folder / "store", folder / "other"], out=folder / "store")


SCENARIOS: Final = {"score": (_build_score, _score), "merge": (_build_merge, _merge)}
"""Command → functions that make the files it works on, with a store `store`, and that run it."""


# --- steps ------------------------------------------------------------------------------------


def _place(path: object, fd: object) -> str:
    """Return the absolute path in an audit event."""
    if isinstance(path, int):
        return ""
    name = os.fsdecode(path) if isinstance(path, bytes | str | os.PathLike) else ""
    if isinstance(fd, int) and fd >= 0 and not name.startswith("/"):
        with contextlib.suppress(OSError):
            name = f"{Path(f'/proc/self/fd/{fd}').readlink()}/{name}"
    return name


def _changed(event: str, arguments: tuple[Any, ...]) -> Iterator[str]:
    """Return the paths that an audit event changes."""
    if event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & _WRITES:
            yield _place(path, -1)
    elif event in {"os.rename", "os.link"}:
        yield _place(arguments[0], arguments[2])
        yield _place(arguments[1], arguments[3])
    elif event in CHANGES:
        yield _place(arguments[0], arguments[-1])


def _what(path: str) -> str:
    """Return what a path in a scenario's folder contains."""
    top, *rest = Path(path).parts
    name = rest[-1] if rest else ""
    if top != "store":
        return {"archive": "transcript", "other": "other store"}.get(top, top)
    if name == "store.json":
        return "manifest"
    if name.removeprefix(".").startswith("mcptally.duckdb"):
        return "views"
    return "work folder" if rest[:1] == [".work"] else "table"


@contextlib.contextmanager
def before_each_step(folder: Path, act: Callable[[int, str], object]) -> Iterator[None]:
    """Call `act` with the number and kind of the step before each change of files in a folder.

    A kind is the audit event and what it changes: `os.rename table, work folder`.
    """
    seen = 0
    watching = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen, watching
        if not watching:
            return
        start = f"{folder}/"
        paths = [path for path in _changed(event, arguments) if path.startswith(start)]
        if not paths:
            return
        seen += 1
        watching = False  # not for the changes that `act` makes
        act(seen, f"{event} {', '.join(sorted({_what(path[len(start) :]) for path in paths}))}")
        watching = True

    sys.addaudithook(hook)  # cannot be removed
    try:
        yield
    finally:
        watching = False


def _state(folder: Path) -> str:
    """A digest of the files in a folder: paths, times and contents.

    Of a store's work folder, only the existence counts: the next run removes it before it reads.
    """
    state = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if ".work" in name.parts[:-1]:
            continue
        state.update(f"\n{name} ".encode())
        if path.is_file():
            state.update(f"{path.stat().st_mtime_ns} ".encode() + path.read_bytes())
    return state.hexdigest()


def after_each_step(
    command: str, folder: Path, choose: Callable[[int], bool], *, rerun_every: int = 1
) -> list[tuple[str, str]]:
    """Run a command once, and check the files that a kill before each chosen step would leave.

    Args:
        command: a name in `SCENARIOS`.
        folder: an empty folder for the files of the command, and their copies.
        choose: whether to check the step that is the n-th of its kind.
        rerun_every: the command runs again after every n-th of the checked steps.

    Returns:
        Kind of each chosen step, and which store is left. Equal files are checked once.

    Raises:
        AssertionError: the store is neither the old one nor the new one, or the next run of the
            command does not make what an undisturbed one makes.
    """
    build, run = SCENARIOS[command]
    world, copies = folder / "world", folder / "copies"
    build(world)
    duckdb_file.write(world / "store")
    stores = {"the old store": tables(world / "store")}
    counts: collections.Counter[str] = collections.Counter()
    kinds = {}

    def copy(step: int, kind: str) -> None:
        counts[kind] += 1
        if choose(counts[kind]):
            kinds[step] = kind
            shutil.copytree(world, copies / str(step))

    with before_each_step(world, copy):
        run(world)
    stores["the new store"] = tables(world / "store")
    checked: dict[str, str] = {}
    found = []
    for step, kind in kinds.items():
        state = _state(copies / str(step))
        if state not in checked:
            shutil.rmtree(world)
            (copies / str(step)).rename(world)
            checked[state] = _which(stores, world / "store")
            if len(checked) % rerun_every == 1 % rerun_every:
                run(world)
                assert _which(stores, world / "store") == "the new store"
                assert not (world / "store" / ".work").exists()
        found.append((kind, checked[state]))
    return found


def _which(stores: dict[str, dict[str, pl.DataFrame]], store: Path) -> str:
    """Return which of two different stores, given by their tables, is in a folder."""
    now = tables(store)
    same = [
        name
        for name, wanted in stores.items()
        if all(now[table].equals(frame) for table, frame in wanted.items())
    ]
    assert len(same) == 1, "neither the old store nor the new one"
    if (store / "mcptally.duckdb").exists():
        with duckdb.connect(str(store / "mcptally.duckdb"), read_only=True) as connection:
            connection.execute("SET VARIABLE store = ?", [str(store)])
            seen = set(connection.sql("SELECT call_id FROM calls").pl()["call_id"])
        ids = [set(wanted["calls"]["call_id"]) for wanted in stores.values()]
        assert seen in ids, "mcptally.duckdb reads neither store"
    return same[0]


def main() -> None:
    """Check the state before every step."""
    with tempfile.TemporaryDirectory() as name:
        for command in SCENARIOS:
            found = after_each_step(command, Path(name) / command, lambda _: True)
            left = [store for _, store in found]
            print(f"{command}: {len(left)} steps", flush=True)
            for words, count in collections.Counter(left).most_common():
                print(f"{count:5}  {words}", flush=True)


if __name__ == "__main__":
    main()
