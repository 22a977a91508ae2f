"""What each predefined question costs on a store of ten million calls, in one run.

    python -m tests.benchmarks questions [--archive PATH] [--calls 10000000] [--store FOLDER]
                                         [--rounds 3] [QUESTION …]

The store contains enough copies of real, scored traffic: every copy has new recordings, sessions
and calls, an hour later than the copy before. Results are left out, and arguments of more than
`ARGUMENTS` characters. `--store` keeps it, and uses what it finds there.

Every question is asked in a process of its own, whose imports are not counted; opening the store
is. Wall and CPU seconds are medians of the rounds, the peak is the largest.
"""

import argparse
import datetime
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import polars as pl

import mcptally
from mcptally.analytics.views import question_titles
from mcptally.store.manifest import MANIFEST
from mcptally.store.parts import write_part
from mcptally.store.work_folder import Provenance, create_work_folder, publish, remove_unlisted
from mcptally.tables.all_tables import TABLES
from mcptally.tables.calls import Calls
from tests.benchmarks import traffic
from tests.corpus import SAMPLES

ARGUMENTS: Final = 200
COPIES: Final = 4
"""Copies per part, which then has as many calls as a partition of the pipeline."""

ASK: Final = """
import json, pathlib, sys, time
import duckdb, polars, scipy.special
import mcptally.analytics.store, mcptally.jsonschemas.definition_diff
import mcptally.statistics.sql_functions
wall, cpu = time.perf_counter(), time.process_time()
rows = mcptally.open_store(sys.argv[1]).ask(sys.argv[2]).to_arrow_table().num_rows
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
status = pathlib.Path("/proc/self/status").read_text()
peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
print(json.dumps([rows, wall, cpu, peak]))
"""

_IDS: Final = ("call_id", "attempt_of", "validated_by")
_NAMES: Final = ("recording", "session")


def main() -> None:
    """Make the store and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks questions")
    parser.add_argument("--archive", type=Path, default=traffic.folder() or SAMPLES)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("questions", nargs="*", default=list(question_titles()))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.store or Path(scratch, "store")
        if not (folder / MANIFEST).exists():
            multiply(given.archive, folder, given.calls, Path(scratch))
        print(f"{calls_in(folder):,} calls, {given.rounds} rounds\n")
        print("| question | rows | wall s | CPU s | peak MB |\n|---|---|---|---|---|")
        for name in given.questions:
            runs = [asked(folder, name) for _ in range(given.rounds)]
            rows, wall, cpu = (statistics.median(run[i] for run in runs) for i in range(3))
            peak = max(run[3] for run in runs)
            print(f"| {name} | {rows:,.0f} | {wall:.2f} | {cpu:.2f} | {peak:,.0f} |", flush=True)


def asked(folder: Path, question: str) -> list[float]:
    """Return rows, wall and CPU seconds and peak MB of one question in its own process."""
    command = [sys.executable, "-c", ASK, str(folder), question]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    answer: list[float] = json.loads(done.stdout)
    return answer


def calls_in(folder: Path) -> int:
    """How many calls a store has."""
    lazy = pl.scan_parquet(folder / Calls.name / "*.parquet")
    return int(lazy.select(pl.len()).collect().item())


def multiply(archive: Path, folder: Path, calls: int, scratch: Path) -> None:
    """Score an archive and write a store with this many copies of its calls."""
    seed = scratch / "seed"
    mcptally.score([archive], out=seed)
    copies = -(-calls // calls_in(seed))
    work = create_work_folder(folder)
    rows = {}
    for table in TABLES:
        frame = pl.read_parquet(seed / table.name / "*.parquet")
        if table is Calls:
            short = pl.col("arguments").str.len_chars() <= ARGUMENTS
            frame = frame.with_columns(
                pl.lit(None, pl.String).alias("response"),
                pl.lit(None, pl.String).alias("text"),
                arguments=pl.when(short).then("arguments"),
            )
        many = copies if "recording" in table.columns() else 1
        rows[table.name] = frame.height * many
        for first in range(0, many, COPIES):
            part = [copy(frame, number) for number in range(first, min(first + COPIES, many))]
            write_part(work, table, f"{first:06d}", pl.concat(part))
        print(f"{table.name}: {rows[table.name]:,} rows", file=sys.stderr)
    publish(folder, work, sources=[], rows=rows, made=Provenance())
    remove_unlisted(folder)


def copy(frame: pl.DataFrame, number: int) -> pl.DataFrame:
    """Return a frame's rows as recordings of another hour; copy 0 is the frame itself."""
    if not number:
        return frame
    later = datetime.timedelta(hours=number)
    changed = [
        (pl.col(name) + later).alias(name)
        for name, kind in frame.schema.items()
        if kind == pl.Datetime("us", "UTC") and "recording" in frame.columns
    ]
    changed += [pl.col(name) + f"-{number}" for name in _NAMES if name in frame.columns]
    for name in set(_IDS) & set(frame.columns):
        old = frame.get_column(name).drop_nulls().unique()
        new = [hashlib.md5(f"{text}{number}".encode()).hexdigest()[:16] for text in old]  # noqa: S324
        changed.append(pl.col(name).replace_strict(old, new, default=None, return_dtype=pl.String))
    return frame.with_columns(changed)


if __name__ == "__main__":
    main()
