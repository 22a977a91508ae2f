"""Measure the ratios of docs/reference/benchmarks.md and add them to that page.

    python -m tests.benchmarks ratios [--archive PATH] [--rounds 5] [--only NAME …]

The large archive is the recorded traffic (`traffic.py`) unless another one is given. Every case
is a process of its own, and the cases take turns. The printed table has CPU seconds (user and
system, with children). Ratios are computed from the least CPU seconds of each case, which a busy
machine changes little. The results of a version and date replace earlier ones of the same; those
of `--only` and of other archives are only printed.
"""

import argparse
import compileall
import datetime
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import mcptally
from mcptally.transcript.files import open_stream
from tests.benchmarks import traffic

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "reference" / "benchmarks.md"
PARSE: Final = """
import os, sys, orjson
paths = sorted(sys.argv[2:], key=os.path.getsize)
other = os.fork() if sys.argv[1] == "2" else None
for path in paths if other is None else paths[bool(other)::2]:
    with open(path, "rb") as file:
        for line in file:
            try:
                orjson.loads(line)
            except orjson.JSONDecodeError:
                pass
if other:
    os.waitpid(other, 0)
"""
IMPORTS: Final = "import polars, pyarrow, duckdb, msgspec, jsonschema_rs, numpy"


class Ratio(NamedTuple):
    """A ratio of the page."""

    meaning: str
    must: str = ""
    """The limit of this program's contract."""
    large: bool = False
    """Whether it needs the large archive."""


RATIOS: Final = {
    "score": Ratio("`score sample_traces`, relative to imports", "2.2"),
    "score again": Ratio("the same with nothing new, relative to imports"),
    "query SQL": Ratio('`query STORE "select 1"`, relative to imports', "1.5"),
    "query tool_scores": Ratio("`query STORE tool_scores`, relative to imports"),
    "overview": Ratio("`mcptally sample_traces` without a cache, relative to imports", "4.0"),
    "overview again": Ratio("`mcptally sample_traces` with nothing new, relative to imports"),
    "report": Ratio("`report STORE`, relative to imports"),
    "marginal": Ratio(
        "`score` of 356 MB of traffic on one core, beyond that of the samples, relative to "
        "`orjson.loads` of its lines (before 2026-11-30: of 250 MB of generated lines)",
        "6.0",
        large=True,
    ),
    "two cores": Ratio(
        "`score` of the large archive on two cores, relative to one core", large=True
    ),
    "one new recording": Ratio(
        "`score` of the large archive with a new file of about 128 kB, relative to the file alone",
        "2.0",
        large=True,
    ),
    "large overview": Ratio(
        "`mcptally` of the large archive without a cache, relative to `score` on two cores",
        large=True,
    ),
    "large report": Ratio("`report` on its store, relative to imports", large=True),
}


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


def main() -> None:
    """Measure, print the ratios and write them into the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks ratios", description=__doc__)
    parser.add_argument("--archive", type=Path, default=traffic.folder(), help="transcripts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=RATIOS, default=list(RATIOS))
    options = parser.parse_args()
    compileall.compile_dir(str(Path(mcptally.__file__).parent), quiet=1)
    with tempfile.TemporaryDirectory() as folder:
        archive = None
        if any(RATIOS[name].large for name in options.only):
            if options.archive is None:
                parser.error(f"give an --archive, or set {traffic.SETTING}")
            archive = Path(folder) / "archive"
            _unpack(options.archive, archive)
        os.environ["XDG_CACHE_HOME"] = str(Path(folder) / "cache")
        found = _measure(Path(folder), archive, options.only, options.rounds)
    for name, value in found.items():
        print(f"{name:20}{value:6.2f}  {RATIOS[name].meaning}")
    if len(found) == len(RATIOS) and options.archive == traffic.folder():
        add(found)


def _unpack(packed: Path, folder: Path) -> None:
    """Copy the transcripts of a folder, decompressed, to another."""
    for path in packed.rglob("*.jsonl*"):
        target = folder / str(path.relative_to(packed)).removesuffix(".zst").removesuffix(".gz")
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_stream(path) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)


def _measure(work: Path, archive: Path | None, wanted: list[str], rounds: int) -> dict[str, float]:
    python = sys.executable
    command = [python, "-m", "mcptally"]
    samples, kept = str(ROOT / "sample_traces"), str(work / "kept")
    fixed = [*command, "score", samples, "--full", "-o"]
    cases = {
        "imports": [python, "-c", IMPORTS],
        "score": [*fixed, str(work / "new")],
        "score again": [*command, "score", samples, "-o", kept],
        "query SQL": [*command, "query", kept, "select 1"],
        "query tool_scores": [*command, "query", kept, "tool_scores"],
        "overview": [*command, samples],
        "overview again": [*command, samples],
        "report": [*command, "report", kept, "-o", str(work / "page.html")],
    }
    if archive is not None:
        files = [str(path) for path in sorted(archive.rglob("*.jsonl"))]
        full = [*command, "score", "--full", "-o"]
        large = [*full, str(work / "large"), str(archive), "--jobs"]
        cases |= {
            "small": [*fixed, str(work / "small"), "--jobs", "1"],
            "parse": [python, "-c", PARSE, "1", *files],
            "parse, two processes": [python, "-c", PARSE, "2", *files],
            "one core": [*large, "1"],
            "two cores": [*large, "2"],
            "one file alone": [*full, str(work / "one"), str(work / "alone")],
            "one new recording": [*command, "score", "-o", str(work / "grown"), str(archive)],
            "large overview": [*command, str(archive)],
            "large report": [*cases["report"][:-3], str(work / "large"), *cases["report"][-2:]],
        }
    large_cases = {"small", "parse", "parse, two processes", "one core", "two cores"}
    if archive is not None and "one new recording" in wanted:
        large_cases.add("one file alone")
        _prepare_one_new_file(archive, work, command)
    chosen = {
        name: case
        for name, case in cases.items()
        if name == "imports" or name in wanted or name in large_cases
    }
    run([*fixed, kept])
    run(cases["query SQL"])
    costs: dict[str, list[Cost]] = {name: [] for name in chosen}
    for _ in range(rounds):
        for name, case in chosen.items():
            if name in {"overview", "large overview"}:
                shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)
            if name == "overview again":
                run(case)
            if name == "one new recording":
                shutil.rmtree(work / "grown", ignore_errors=True)
                shutil.copytree(work / "known", work / "grown")
            costs[name].append(run(case))
    print("| case | CPU s (min to max) | wall s | peak MB |\n|---|---|---|---|")
    for name, some in costs.items():
        walls, cpus, peaks = zip(*some, strict=True)
        print(
            f"| {name} | {min(cpus):.2f} to {max(cpus):.2f} | {min(walls):.2f} | {max(peaks):.0f} |"
        )
    cpu = {name: min(cost.cpu for cost in some) for name, some in costs.items()}
    ratios = {name: cpu[name] / cpu["imports"] for name in RATIOS if name in cpu}
    if archive is not None:
        ratios["marginal"] = (cpu["one core"] - cpu["small"]) / cpu["parse"]
        ratios["two cores"] = cpu["two cores"] / cpu["one core"]
        wall = {name: min(cost.wall for cost in some) for name, some in costs.items()}
        ours, theirs = (
            wall["one core"] / wall["two cores"],
            wall["parse"] / wall["parse, two processes"],
        )
        print(f"\nTwo cores: score {ours:.2f} times as fast, orjson.loads {theirs:.2f}\n")
        if "one file alone" in cpu:
            ratios["one new recording"] = cpu["one new recording"] / cpu["one file alone"]
        if "large overview" in cpu:
            ratios["large overview"] = cpu["large overview"] / cpu["two cores"]
    return {name: ratios[name] for name in RATIOS if name in ratios and name in wanted}


def _prepare_one_new_file(archive: Path, work: Path, command: Sequence[str]) -> None:
    """Score all but one file of the archive to `known`, and copy this file to `alone`."""
    new = min(archive.rglob("*.jsonl"), key=lambda path: abs(path.stat().st_size - 128_000))
    (work / "alone").mkdir()
    aside = new.rename(work / "alone" / new.name)
    run([*command, "score", str(archive), "-o", str(work / "known")])
    shutil.copy2(aside, new)


def add(ratios: Mapping[str, float]) -> None:
    """Add a row for this version to the page, in place of one of the same version and date."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    name = f"| {mcptally.__version__}, {today} |"
    libraries = ("polars", "pyarrow", "duckdb")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in libraries]
    cells = [f"{ratios[name]:.2f}" if name in ratios else "" for name in RATIOS]
    used = f"Python {platform.python_version()}, {', '.join(versions)}"
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if not line.startswith(name)]
    limits = next(number for number, line in enumerate(lines) if line.startswith("| limit |"))
    lines.insert(limits + 1, f"{name} {' | '.join(cells)} | {used} |")
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
