"""Measures how CPU and memory of `mcptally score` grow with the archive, and unusual sizes.

    python -m tests.benchmarks growth [--sizes 10,100,1000] [--limit 400 --times 10] [--odd] [--new]

Made archives of each size (MB) are scored on one core. With `--limit` an archive `--times` as large
as that many MB is scored inside a memory cgroup of the limit, if the system allows one: the kernel
kills a process that exceeds the limit. The cost model, CPU = fixed + rate * size, is fitted to all
sizes but the last, which it then predicts. `--odd`: one frame of 200 MB, a session of a million
calls, a million recordings in one file, 100,000 files of one call each. `--new`: one new recording
in an archive of 250 MB and in one of 100,000 files, after scoring the recording alone.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tests.benchmarks.archive import generate, new_recording
from tests.benchmarks.score import Cost, run

MEGA: Final = 1_000_000
FIT_FROM: Final = 2
"""Number of sizes above which the cost model is fitted and checked."""
CGROUPS: Final = Path("/sys/fs/cgroup")


def main(arguments: Sequence[str]) -> None:
    """Measure and print one table (Markdown)."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks growth", description=__doc__)
    parser.add_argument("--sizes", default="10,100,1000", help="MB, with commas")
    parser.add_argument("--limit", type=int, help="MB of memory, enforced by the kernel")
    parser.add_argument("--times", type=int, default=10, help="the archive is so often as large")
    parser.add_argument("--odd", action="store_true", help="also sizes out of the ordinary")
    parser.add_argument("--new", action="store_true", help="also one new recording")
    parser.add_argument("--folder", type=Path, help="where archives are made")
    options = parser.parse_args(arguments)
    print("| archive | MB | CPU s | ms per MB | wall s | peak MB |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        work = Path(folder)
        points = []
        for size in filter(None, options.sizes.split(",")):
            archive = work / size
            generate(archive, size=int(float(size) * MEGA))
            points.append((float(size), report(f"{size} MB", archive, work).cpu))
            shutil.rmtree(archive)
        if len(points) > FIT_FROM:
            print(f"\n{model(points)}\n")
        if options.odd:
            for name, make in (
                ("one frame of 200 MB", frame),
                ("a million calls in one session", session),
                ("a million recordings in one file", recordings),
                ("100,000 files", files),
            ):
                report(name, make(work / name.replace(" ", "-")), work)
        if options.new:
            archive = work / "250"
            generate(archive, size=250 * MEGA)
            number = 30_007  # server 7, after all others
            one_new(archive, new_recording(work / "new.jsonl", number), work)
            one_new(files(work / "many"), lone_call(work / "call.jsonl"), work)
        if options.limit:
            archive = work / "limited"
            generate(archive, size=options.limit * options.times * MEGA)
            with limited(options.limit * MEGA) as prefix:
                name = f"{options.times} times the limit of {options.limit} MB"
                report(name, archive, work, prefix, ["--memory", f"{options.limit * MEGA}"])


def one_new(archive: Path, new: Path, work: Path) -> None:
    """Score a recording alone, and after the archive was scored; print both."""
    report("one recording", new, work)
    report(f"the archive {archive.name}", archive, work)
    more = ["-o", str(work / "store"), "--jobs", "1"]
    added = run([sys.executable, "-m", "mcptally", "score", str(archive), str(new), *more])
    print(
        f"| and the recording | | {added.cpu:.2f} | | {added.wall:.1f} | {added.megabytes:,.0f} |"
    )


def model(points: Sequence[tuple[float, float]]) -> str:
    """Describe the fit of CPU seconds to sizes (MB) and the prediction of the last point."""
    *known, (size, measured) = points
    sizes, cpu = np.array(known).T
    rate, fixed = np.polyfit(sizes, cpu, 1)
    expected = fixed + rate * size
    return (
        f"CPU s = {fixed:.2f} + {rate:.4f} * MB; predicted for {size:,.0f} MB: {expected:.1f}, "
        f"measured {measured:.1f} ({measured / expected - 1:+.0%}); "
        f"1 TB: {rate * 1e6 / 3600:.1f} CPU hours"
    )


def report(
    name: str, archive: Path, work: Path, prefix: Sequence[str] = (), more: Sequence[str] = ()
) -> Cost:
    """Score, print a row, and return the cost."""
    score = [sys.executable, "-m", "mcptally", "score", str(archive), "--full", "--jobs", "1"]
    cost: Cost = run([*prefix, *score, "-o", str(work / "store"), *more])
    found = archive.iterdir() if archive.is_dir() else [archive]
    size = sum(path.stat().st_size for path in found) / MEGA
    print(
        f"| {name} | {size:,.0f} | {cost.cpu:.2f} | {1000 * cost.cpu / size:.1f} "
        f"| {cost.wall:.1f} | {cost.megabytes:,.0f} |",
        flush=True,
    )
    return cost


def line(seq: int, direction: str, message: object, recording: str = "r") -> bytes:
    """A line of a transcript."""
    head = {"v": 1, "event": "message", "recording": recording, "seq": seq, "ts_ns": 10**18 + seq}
    return json.dumps(head | {"dir": direction, "bytes": 1, "msg": message}).encode() + b"\n"


def exchange(number: int, text: str, recording: str = "r") -> bytes:
    """A call to a tool and its reply."""
    call = {"name": "echo", "arguments": {"text": f"number {number}"}}
    result = {"content": [{"type": "text", "text": text}]}
    both = ("c2s", {"method": "tools/call", "params": call}), ("s2c", {"result": result})
    return b"".join(
        line(2 * number + i, way, {"jsonrpc": "2.0", "id": number, **rest}, recording)
        for i, (way, rest) in enumerate(both)
    )


def frame(folder: Path, size: int = 200 * MEGA) -> Path:
    """Return one reply of this many bytes."""
    folder.mkdir()
    text = "lorem ipsum dolor sit amet, consectetur adipiscing elit " * (size // 56)
    (folder / "frame.jsonl").write_bytes(exchange(1, text))
    return folder


def session(folder: Path, calls: int = MEGA) -> Path:
    """Calls one after the other in one recording."""
    folder.mkdir()
    me = {"name": "c", "version": "1"}
    asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": me}
    answered = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": me}
    with (folder / "session.jsonl").open("wb") as file:
        head = {"jsonrpc": "2.0", "id": "i"}
        file.write(line(0, "c2s", head | {"method": "initialize", "params": asked}))
        file.write(line(1, "s2c", head | {"result": answered}))
        file.writelines(exchange(number, f"answer {number}") for number in range(1, calls))
    return folder


def recordings(folder: Path, count: int = MEGA) -> Path:
    """Recordings of one call each, all in one file."""
    folder.mkdir()
    with (folder / "recordings.jsonl").open("wb") as file:
        file.writelines(exchange(1, "one answer", f"r{number}") for number in range(count))
    return folder


def files(folder: Path, count: int = 100_000) -> Path:
    """A recording of one call in each of many files."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.jsonl").write_bytes(exchange(1, "one answer", f"r{number}"))
    return folder


def lone_call(path: Path) -> Path:
    """A recording of one call that `files` does not have."""
    path.write_bytes(exchange(1, "one answer", "new"))
    return path


@contextlib.contextmanager
def limited(size: int) -> Iterator[list[str]]:
    """Return the prefix of a command line that limits the memory of its command to `size` bytes."""
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    places = {kind: path.lstrip("/") for _, kind, path in (each.split(":", 2) for each in lines)}
    old = "memory" in places
    home = CGROUPS / "memory" / places["memory"] if old else CGROUPS / places[""]
    group = home / f"mcptally-{os.getpid()}"
    group.mkdir()
    try:
        name = "memory.limit_in_bytes" if old else "memory.max"
        (group / name).write_text(str(size), encoding="ascii")
        enter = f'echo $$ > "{group}/cgroup.procs"; exec "$@"'
        yield ["/bin/sh", "-c", enter, "sh"]
    finally:
        group.rmdir()


if __name__ == "__main__":
    main(sys.argv[1:])
