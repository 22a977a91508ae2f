"""What validation costs, part by part, beside `orjson.loads` of the same lines.

python -m tests.benchmarks.validity ARCHIVE [ROUNDS]

Each part runs on frames that are decoded and paired already, on one thread; CPU seconds, the median
of the rounds, the first of which is cold (schemas compiled, patterns built) and told apart.
"""

import os

os.environ["POLARS_MAX_THREADS"] = "1"

import resource
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from mcptally.jsonschemas import validate
from mcptally.messages.decode import decode
from mcptally.messages.integrity import deduplicate
from mcptally.messages.pair import pair
from mcptally.messages.sessions import assign_sessions
from mcptally.messages.tool_definitions import add_definitions, read_listings
from mcptally.protocol import all_rules, definition_lint, leaked_secrets
from mcptally.transcript.discover import discover
from mcptally.transcript.files import LineRun, read_lines


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def timed(work: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """CPU seconds of the first round, and the median of the others."""
    spent = []
    for _ in range(rounds + 1):
        begin = cpu()
        work()
        spent.append(cpu() - begin)
    return spent[0], statistics.median(spent[1:])


def parse(texts: list[bytes]) -> None:
    for text in texts:
        try:
            orjson.loads(text)
        except orjson.JSONDecodeError:
            continue


def _base(files: list[Path], rounds: int) -> tuple[float, float]:
    """Megabytes of all lines, and CPU seconds of parsing them."""
    texts = [
        line
        for path in files
        for run in read_lines(path)
        if isinstance(run, LineRun)
        for line in run.data.split(b"\n")
    ]
    return sum(map(len, texts)) / 1e6, timed(lambda: parse(texts), rounds)[1]


def main() -> None:
    files = discover([Path(sys.argv[1])])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    size, base = _base(files, rounds)
    names = [str(path) for path in files]
    events = deduplicate(decode(files, names), names, files)
    paired = pair(events, assign_sessions(events))
    files_named = pl.DataFrame(
        {"file": pl.Series(range(len(names)), dtype=pl.UInt32), "name": names}
    )
    messages, calls = (
        frame.join(files_named, on="file", how="left", maintain_order="left")
        .drop("file")
        .rename({"name": "file"})
        for frame in (paired.messages, paired.calls)
    )
    listed, known = read_listings(calls, messages)
    calls = add_definitions(calls, listed, listed)
    parts: dict[str, tuple[int, Callable[[], Any]]] = {
        "protocol": (
            messages.height,
            lambda: all_rules.check_protocol(events, messages, calls, names),
        ),
        "tool schemas": (calls.height, lambda: validate.validate_calls(calls, known)),
        "definitions": (known.height, lambda: definition_lint.lint_definitions(listed, known)),
        "credentials": (calls.height, lambda: leaked_secrets.find_leaked_secrets(calls)),
    }
    print(f"{size:.0f} MB, {messages.height} messages, {calls.height} calls, {known.height} tools")
    print(f"{'part':<14}{'first s':>9}{'then s':>9}{'rows/s':>12}{'x orjson':>10}")
    print(f"{'orjson.loads':<14}{'':>9}{base:>9.3f}{'':>12}{1:>10.2f}")
    total = 0.0
    for name, (rows, work) in parts.items():
        cold, warm = timed(work, rounds)
        total += warm
        print(f"{name:<14}{cold:>9.3f}{warm:>9.3f}{rows / warm:>12,.0f}{warm / base:>10.2f}")
    print(f"{'together':<14}{'':>9}{total:>9.3f}{'':>12}{total / base:>10.2f}")


if __name__ == "__main__":
    main()
