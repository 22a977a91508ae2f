"""Measure the process that coordinates a run, on files and recordings without payloads.

    python -m tests.benchmarks coordinator [--files 1000000] [--recordings 10] [--partitions 1000]

Each step runs in a process of its own, on what the workers of a run would report: no transcript is
scored. Recordings are per file. Memory is the peak beyond the imports.
"""

import argparse
import hashlib
import multiprocessing
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import polars as pl

from mcptally.pipeline import gathering, partition, plan, run
from mcptally.pipeline.archive_context import ArchiveContext
from mcptally.pipeline.engines.worker import GatherReport, Partition
from mcptally.pipeline.gathering import Gathered
from mcptally.pipeline.incremental import EarlierStores
from mcptally.pipeline.partition_summary import SUMMARY_TABLES
from mcptally.store import manifest, work_folder
from mcptally.store.manifest import SUMMARIES
from mcptally.store.parts import write_part
from mcptally.store.source_files import SourceFile
from mcptally.store.work_folder import Provenance
from mcptally.tables.all_tables import TABLES
from mcptally.tables.findings import Findings
from mcptally.tables.recordings import Recordings
from mcptally.transcript.discover import discover

STEPS: Final = ("discover", "plan", "join recordings", "publish", "query", "run again", "tools")

TOOLS: Final = 300
SERVERS: Final = 20
MADE: Final = ("listed", "definitions", "combinations", "minutes", "forms")
"""Kinds of summaries that have rows."""


def main() -> None:
    """Measure each step and print a table (Markdown)."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks coordinator", description=__doc__
    )
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--recordings", type=int, default=10, help="per file")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    options = parser.parse_args()
    number = options.files * options.recordings
    print(f"{options.files:,} files, {number:,} recordings, {options.partitions:,} partitions\n")
    print("| step | CPU s | MB |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder), options.files, options.recordings, options.partitions)
        for step in options.steps:
            cpu, megabytes = _measured(getattr(work, step.replace(" ", "_")))
            print(f"| {step} | {cpu:.1f} | {megabytes:,.0f} |", flush=True)


def _measured(step: Callable[[], None]) -> tuple[float, float]:
    """CPU seconds and peak of memory (MB) of a step in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_step, args=(step, theirs))
    process.start()
    theirs.close()
    found: tuple[float, float] = ours.recv()
    process.join()
    return found


def _step(step: Callable[[], None], pipe: multiprocessing.connection.Connection) -> None:
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    step()
    used = time.process_time() - begin
    pipe.send((used, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1e3))


class Work:
    """The steps, on an archive of empty files."""

    def __init__(self, folder: Path, files: int, recordings: int, partitions: int) -> None:
        self.folder, self.files = folder, files
        self.recordings, self.partitions = recordings, partitions
        self.store = folder / "store"

    def _names(self) -> Iterator[str]:
        for number in range(self.files):
            yield f"{self.folder}/archive/{number // 1000:04d}/server-{number:07d}.jsonl"

    def discover(self) -> None:
        """Find the files, which are made first."""
        for number, name in enumerate(self._names()):
            if number % 1000 == 0:
                Path(name).parent.mkdir(parents=True)
            Path(name).touch()
        begin = time.process_time()
        discover([self.folder / "archive"])
        print(f"(of which discover: {time.process_time() - begin:.1f} s)")

    def plan(self) -> None:
        """Distribute the files over partitions, by size and by their first event."""
        plan.plan([Path(name) for name in self._names()])

    def _gathered(self) -> list[Gathered]:
        """What the workers report."""
        names = list(self._names())
        size = -(-self.files // self.partitions)
        found = []
        for number in range(self.partitions):
            mine = names[number * size : (number + 1) * size]
            ids = [
                hashlib.md5(f"{name}{place}".encode()).hexdigest()  # noqa: S324
                for name in mine
                for place in range(self.recordings)
            ]
            digest = hashlib.sha256(mine[0].encode()).hexdigest() if mine else ""
            sources = [
                SourceFile(n, 100, f"{i:08d}{digest[8:]}", (10**18, 10**18, i))
                for i, n in enumerate(mine)
            ]
            report = GatherReport(pl.Series("recording", ids), sources, ["demo"], 0)
            partition = Partition(number, [Path(name) for name in mine])
            found.append(Gathered(partition, len(mine), report))
        return found

    def join_recordings(self) -> None:
        """Find recordings of several partitions."""
        gathered = self._gathered()
        begin = time.process_time()
        gathering._sharing_recordings({each.partition.number: each for each in gathered})
        print(f"(of which joining: {time.process_time() - begin:.1f} s)")

    def publish(self) -> None:
        """Write `store.json`; before that, write the tables as the workers would."""
        gathered = self._gathered()
        begin = time.process_time()
        sources = run._sources(gathered, None, [])
        self.store.mkdir()
        work = work_folder.create_work_folder(self.store)
        for each in gathered:
            ids = each.report.recordings
            names = [s.file for s in each.report.sources for _ in range(self.recordings)]
            rows = pl.DataFrame({"recording": ids, "server": "demo", "files": names}).with_columns(
                pl.concat_list("files")
            )
            name = f"{each.partition.number:06d}"
            write_part(work, Recordings, name, rows)
            write_part(work, Findings, name, Findings.empty())
        print(f"(before publishing: {time.process_time() - begin:.1f} s)")
        begin = time.process_time()
        rows = dict.fromkeys((table.name for table in TABLES), 0)
        work_folder.publish(self.store, work, sources=sources, rows=rows, made=Provenance())
        print(f"(of which publishing: {time.process_time() - begin:.1f} s)")
        size = (self.store / manifest.MANIFEST).stat().st_size
        print(f"(store.json: {size / 1e6:,.0f} MB)")

    def _context(self) -> ArchiveContext:
        """The facts of summaries in which every recording lists one tool and calls it."""
        work = self.folder / "summaries"
        rows = self.files * self.recordings // self.partitions
        for number in range(self.partitions):
            place = pl.int_range(rows, dtype=pl.Int64, eager=True) + number * rows
            tool = "tool" + (place % TOOLS).cast(pl.String)
            known = {
                "recording": place.cast(pl.String),
                "session": place.cast(pl.String) + "/0",
                "server": "server" + (place % SERVERS).cast(pl.String),
                "tool": tool,
                "definition": tool,
                "minute": place // 100,
                **dict.fromkeys(("listed_ns", "answered_ns"), place * 10**9),
                **dict.fromkeys(("calls", "seen"), pl.lit(1)),
            }
            for kind, table in SUMMARY_TABLES.items():
                columns = [
                    known.get(name, pl.lit(None)).cast(dtype, strict=False).alias(name)
                    for name, dtype in table.schema().items()
                ]
                frame = pl.select(columns) if kind in MADE else table.empty()
                if kind == "definitions":
                    frame = frame.unique("definition").with_columns(text=pl.lit("{}"))
                target = work / SUMMARIES / kind / f"{number:06d}.parquet"
                target.parent.mkdir(parents=True, exist_ok=True)
                frame.write_parquet(target, compression="zstd", compression_level=1)
        begin = time.process_time()
        found = ArchiveContext(
            [gathering.stored_summaries(work, range(self.partitions))], self.folder / "spool"
        )
        print(f"(of which reading: {time.process_time() - begin:.1f} s)")
        shutil.rmtree(work)
        return found

    def tools(self) -> None:
        """Read what the summaries of all partitions say, and make the table of tools."""
        context = self._context()
        begin = time.process_time()
        partition.tools(context.summary(), context.sightings.rows)
        print(f"(of which tools: {time.process_time() - begin:.1f} s)")

    def query(self) -> None:
        """Read what a query needs of `store.json`."""
        manifest.read_manifest(self.store, archive=False)

    def run_again(self) -> None:
        """Read what the next run needs to know of the store."""
        EarlierStores.read([self.store], [manifest.read_manifest(self.store)])


if __name__ == "__main__":
    main()
