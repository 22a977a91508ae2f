"""Measures `mcptally score`, `orjson.loads` and equivalent plain Python loops in one run.

    python -m tests.benchmarks score [--archive PATH | --size 300] [--shape traffic|small]
                                     [--times N] [--rounds 5] [--no-loops]

Every case runs in its own process, and the cases take turns, so that a busy machine affects all
equally. The table has the median, minimum and maximum of CPU seconds (user and system, with
children). The ratio is to `orjson.loads` of every line of the plain files. The naive loops read a
part of the archive (`SAMPLE` bytes) and are scaled up.
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
from tests.benchmarks.archive import SHAPES, generate, multiply

SAMPLE: Final = 24 << 20

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
LOOP: Final = """
import sys, orjson
import jsonschema, jsonschema_rs
from mcptally.seeds.inspector.model import ValidationContext
from mcptally.seeds.inspector.single import validate_response
kept = {}
def judge(schema, value):
    text = orjson.dumps(schema)
    if text not in kept:
        kept[text] = jsonschema_rs.validator_for(schema, validate_formats=False, offline=True)
    return kept[text].is_valid(value)
def slow(schema, value):
    try:
        jsonschema.validate(value, schema)
    except jsonschema.ValidationError:
        return False
    return True
way = slow if sys.argv[1] == "validate" else judge
tools, open_, done = {}, {}, 0
for path in sys.argv[2:]:
    with open(path, "rb") as file:
        for line in file:
            try:
                event = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            message = event.get("msg")
            if event["event"] != "message" or not isinstance(message, dict):
                continue
            key = event["recording"], repr(message.get("id"))
            if "method" in message:
                open_[event["dir"], key] = message
                continue
            asked = open_.pop(("s2c" if event["dir"] == "c2s" else "c2s", key), None)
            result = message.get("result")
            if asked is None:
                continue
            if asked["method"] == "tools/list" and isinstance(result, dict):
                for tool in result.get("tools", ()):
                    tools[event["recording"], tool["name"]] = tool
            elif asked["method"] == "tools/call" and isinstance(asked.get("params"), dict):
                params = asked["params"]
                given = params.get("arguments") or {}
                tool = tools.get((event["recording"], params.get("name")))
                if tool is not None:
                    try:
                        way(tool["inputSchema"], given)
                    except Exception:
                        pass
                context = ValidationContext(
                    tool=tool or {"name": str(params.get("name"))}, input=given,
                    response=result if isinstance(result, dict) else {"content": []},
                )
                for rules in ("document", "inspector"):
                    try:
                        validate_response(context, rules=rules)
                    except Exception:
                        pass
                done += 1
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
    parser.add_argument("--times", type=int, default=1, help="how often to take the archive")
    parser.add_argument("--size", type=float, default=300, help="MB to make")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="traffic")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-loops", action="store_true", help="leave the slow loops out")
    options = parser.parse_args(arguments)
    # An installed package has its bytecode; a checkout may have none, and make none.
    compileall.compile_dir(str(Path(mcptally.__file__).parent), quiet=1)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        plain = work / "plain"
        if options.archive is None:
            generate(plain, size=int(options.size * 1e6), shape=options.shape, seed=options.seed)
        else:
            sources = sorted(options.archive.rglob("*.jsonl"))
            if options.times == 1:
                plain = options.archive
            else:
                multiply(sources, plain, times=options.times)
        _measure(plain, work, options.rounds, loops=not options.no_loops)


def _measure(plain: Path, work: Path, rounds: int, *, loops: bool) -> None:
    files = [str(path) for path in sorted(plain.rglob("*.jsonl"))]
    size = sum(Path(path).stat().st_size for path in files)
    python = sys.executable
    store = str(work / "store")
    score = [python, "-m", "mcptally", "score", "--full"]
    cases: dict[str, tuple[list[str], float]] = {
        "orjson.loads": ([python, "-c", PARSE, *files], 1),
        "orjson.loads, two processes": ([python, "-c", PARSE_TWICE, *files], 1),
        "score, one core": ([*score, str(plain), "-o", store, "--jobs", "1"], 1),
        "score, two cores": ([*score, str(plain), "-o", store, "--jobs", "2"], 1),
    }
    if loops:
        some, taken = [], 0
        for path in files:
            if taken < SAMPLE:
                some.append(path)
                taken += Path(path).stat().st_size
        for name in ("kept", "validate"):
            label = {"kept": "loop, validators kept", "validate": "loop, jsonschema.validate"}
            cases[label[name]] = ([python, "-c", LOOP, name, *some], size / taken)
    costs: dict[str, list[Cost]] = {name: [] for name in cases}
    for number in range(rounds):
        for name, (command, _) in cases.items():
            if name.startswith("loop") and number:
                continue
            costs[name].append(run(command))
    floor = statistics.median(cost.cpu for cost in costs["orjson.loads"])
    print(f"{len(files)} files, {size / 1e6:,.0f} MB, {rounds} rounds\n")
    print("| case | CPU s (min to max) | wall s | times orjson.loads | peak MB |")
    print("|---|---|---|---|---|")
    for name, (_, scale) in cases.items():
        cpu = [cost.cpu * scale for cost in costs[name]]
        wall = statistics.median(cost.wall for cost in costs[name]) * scale
        peak = max(cost.megabytes for cost in costs[name])
        middle = statistics.median(cpu)
        print(
            f"| {name} | {middle:.2f} ({min(cpu):.2f} to {max(cpu):.2f}) | {wall:.2f} "
            f"| {middle / floor:.2f} | {peak:,.0f} |"
        )

    def faster(one: str, two: str) -> float:
        return statistics.median(
            a.wall / b.wall for a, b in zip(costs[one], costs[two], strict=True)
        )

    ours = faster("score, one core", "score, two cores")
    theirs = faster("orjson.loads", "orjson.loads, two processes")
    print(f"\nTwo cores: score {ours:.2f} times as fast, orjson.loads {theirs:.2f}: ", end="")
    print(f"{ours / theirs:.2f} of it.")
