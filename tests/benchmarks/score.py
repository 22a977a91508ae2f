"""Measures `mcptally score` beside `orjson.loads` of the same lines, in one run.

    python -m tests.benchmarks score [--archive PATH | --size 300] [--shape traffic|small]
                                     [--rounds 5]

Every case runs in its own process, and the cases take turns, so that a busy machine affects all
equally. The table has the median, minimum and maximum of CPU seconds (user and system, with
children). The ratio is to `orjson.loads` of every line of the plain files. `one recording` scores a
new recording alone; `one more` scores the archive again after it was added.
"""

import argparse
import compileall
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import mcptally
from tests.benchmarks.archive import SHAPES, generate, new_recording

PARSE: Final = """
import sys, orjson
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        for line in file:
            try:
                orjson.loads(line)
            except orjson.JSONDecodeError:
                pass
"""
PARSE_TWICE: Final = """
import multiprocessing, sys, orjson
def run(paths):
    for path in paths:
        with open(path, "rb") as file:
            for line in file:
                try:
                    orjson.loads(line)
                except orjson.JSONDecodeError:
                    pass
import os
halves = [[], []]
for path in sorted(sys.argv[1:], key=os.path.getsize, reverse=True):
    min(halves, key=lambda half: sum(map(os.path.getsize, half))).append(path)
other = multiprocessing.get_context("fork").Process(target=run, args=(halves[0],))
other.start(); run(halves[1]); other.join()
"""


class Cost(NamedTuple):
    """The resources that one process used."""

    wall: float
    cpu: float
    megabytes: float


def run(command: Sequence[str]) -> Cost:
    """Run a command and return the resources that it used."""
    begin = time.perf_counter()
    silent = os.open(os.devnull, os.O_WRONLY)
    files = [(os.POSIX_SPAWN_DUP2, silent, 1), (os.POSIX_SPAWN_DUP2, silent, 2)]
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=files)
    _, status, used = os.wait4(pid, 0)
    os.close(silent)
    if status:
        raise SystemExit(f"failed ({status}): {' '.join(command)[:300]}")
    wall = time.perf_counter() - begin
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3)


def main(arguments: Sequence[str]) -> None:
    """Measure and print one table (Markdown)."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks score", description=__doc__)
    parser.add_argument("--archive", type=Path, help="plain transcripts (a folder), not made ones")
    parser.add_argument("--size", type=float, default=300, help="MB to make")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="traffic")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    # An installed package has its bytecode; a checkout may have none, and make none.
    compileall.compile_dir(str(Path(mcptally.__file__).parent), quiet=1)
    with tempfile.TemporaryDirectory() as folder:
        archive = options.archive or Path(folder) / "plain"
        if options.archive is None:
            generate(archive, size=int(options.size * 1e6), shape=options.shape)
        _measure(archive, Path(folder), options.rounds)


def _measure(archive: Path, work: Path, rounds: int) -> None:
    files = [str(path) for path in sorted(archive.rglob("*.jsonl"))]
    new = str(new_recording(work / "new.jsonl", 30_007))  # server 7, after all others
    python, plain, store = sys.executable, str(archive), str(work / "store")
    score = [python, "-m", "mcptally", "score", "-o", store]
    cases = {
        "orjson.loads": [python, "-c", PARSE, *files],
        "orjson.loads, two processes": [python, "-c", PARSE_TWICE, *files],
        "one recording": [*score, "--full", "--jobs", "1", new],
        "score, two cores": [*score, "--full", "--jobs", "2", plain],
        "score, one core": [*score, "--full", "--jobs", "1", plain],
        "one more": [*score, "--jobs", "1", plain, new],
    }
    costs: dict[str, list[Cost]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, command in cases.items():
            costs[name].append(run(command))
    floor = statistics.median(cost.cpu for cost in costs["orjson.loads"])
    print("| case | CPU s (min to max) | wall s | times orjson.loads | peak MB |")
    print("|---|---|---|---|---|")
    for name, some in costs.items():
        cpu = [cost.cpu for cost in some]
        middle, wall = (statistics.median(each) for each in (cpu, [cost.wall for cost in some]))
        print(
            f"| {name} | {middle:.2f} ({min(cpu):.2f} to {max(cpu):.2f}) | {wall:.2f} "
            f"| {middle / floor:.2f} | {max(cost.megabytes for cost in some):,.0f} |"
        )

    def faster(one: str, two: str) -> float:
        pairs = zip(costs[one], costs[two], strict=True)
        return statistics.median(a.wall / b.wall for a, b in pairs)

    ours = faster("score, one core", "score, two cores")
    theirs = faster("orjson.loads", "orjson.loads, two processes")
    print(f"\nTwo cores: score {ours:.2f} times as fast, orjson.loads {theirs:.2f}")
