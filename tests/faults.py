"""Kills `mcptally score` while it works, and sees that nothing is lost and the next run mends it.

python -m tests.faults --kills 300     kills as many runs, and prints what was found after each
"""

import argparse
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl
from polars.testing import assert_frame_equal

ROOT: Final = Path(__file__).parents[1]
TRACES: Final = ROOT / "sample_traces"
BEFORE: Final = [TRACES / "time.jsonl"]
AFTER: Final = [TRACES / "time.jsonl", TRACES / "git.jsonl.zst"]

WATCHED: Final = frozenset(
    {"open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.truncate"}
)
"""What Python tells of before it touches a file (PEP 578)."""


def tables(store: Path) -> dict[str, pl.DataFrame]:
    """Every table of a store, sorted."""
    from mcptally.schema import TABLES

    found = {}
    for table in TABLES:
        frame = pl.read_parquet(store / table.name / "*.parquet")
        found[table.name] = frame.sort(table.key, nulls_last=True)
    return found


def is_like(store: Path, wanted: dict[str, pl.DataFrame]) -> bool:
    """Whether a store's calls, messages and recordings are those."""
    now = tables(store)
    try:
        for name in ("calls", "messages", "recordings", "tools"):
            assert_frame_equal(now[name], wanted[name])
    except AssertionError:
        return False
    return now["findings"].height == wanted["findings"].height


def die_at(step: int, store: Path) -> None:
    """Have this process killed before it touches a file of the store for the n-th time."""
    seen = 0

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if name in WATCHED and any(str(each).startswith(str(store)) for each in arguments):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def killed_at(step: int, store: Path, files: Sequence[Path]) -> bool:
    """Score into a store in a process that dies at a step; whether it came so far."""
    command = [sys.executable, "-m", "tests.faults", "--die-at", str(step), str(store)]
    done = subprocess.run([*command, *map(str, files)], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


def killed_after(seconds: float, store: Path, files: Sequence[Path]) -> bool:
    """Score into a store with two processes, and kill the first of them after some time."""
    command = [sys.executable, "-m", "mcptally", "score", "-o", str(store), "--jobs", "2"]
    with subprocess.Popen([*command, *map(str, files)], stderr=subprocess.DEVNULL) as run:
        try:
            return run.wait(seconds) != 0
        except subprocess.TimeoutExpired:
            run.kill()
            return True


def found_after(
    store: Path, before: dict[str, pl.DataFrame], after: dict[str, pl.DataFrame]
) -> str:
    """What lies there after a run was killed: the old store, the new one, or a message."""
    import mcptally as mt
    from mcptally.errors import StoreError

    try:
        mt.open_store(store)
    except StoreError as error:
        if "mcptally score" in str(error) or "run mcptally" in str(error):
            return "refused, with what to do"
        raise
    for name, wanted in (("the old store", before), ("the new store", after)):
        if is_like(store, wanted):
            return name
    raise AssertionError("neither the old store nor the new one")


def mended(store: Path, after: dict[str, pl.DataFrame]) -> None:
    """The next run makes what an undisturbed one makes, and leaves nothing lying about."""
    import mcptally as mt

    mt.score(AFTER, out=store)
    assert is_like(store, after)
    assert not (store / ".work").exists()


def main() -> None:
    """Kill runs, half of them at a step, half of them after some time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--die-at", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    import mcptally as mt

    if given.die_at:
        step, store, *files = given.die_at
        die_at(int(step), Path(store))
        mt.score(files, out=store)
        return
    chance = random.Random(given.seed)
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mt.score(BEFORE, out=folder / "before")
        mt.score(AFTER, out=folder / "after")
        before, after = tables(folder / "before"), tables(folder / "after")
        for number in range(given.kills):
            store = folder / "store"
            shutil.rmtree(store, ignore_errors=True)
            if chance.random() < 0.7:
                shutil.copytree(folder / "before", store)
            if number % 2:
                killed = killed_at(chance.randrange(1, 205), store, AFTER)
            else:
                killed = killed_after(chance.uniform(0.3, 3.0), store, AFTER)
            what = found_after(store, before, after)
            counts[f"{'killed' if killed else 'came to its end'}: {what}"] += 1
            mended(store, after)
    for words, count in counts.most_common():
        print(f"{count:5}  {words}")
    print(f"{given.kills:5}  runs; after each the next run made the tables of an undisturbed one")


if __name__ == "__main__":
    main()
