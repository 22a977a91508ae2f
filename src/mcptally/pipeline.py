"""The line from archive to store, in a dozen statements.

discover → plan → gather each partition → what the archive knows → finish each → publish
"""

import dataclasses
import gc
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from mcptally import store
from mcptally.archive import discover
from mcptally.crew import Team
from mcptally.engines import Engine, opened
from mcptally.errors import UnreadableError
from mcptally.partition import Knowledge, tools
from mcptally.plan import PARTITION, plan, weight
from mcptally.schema import TABLES, Findings, Recordings
from mcptally.scoring import Judging
from mcptally.share import Learned, Written

Progress = Callable[[int, int], None]
"""Called with bytes of work done and bytes in all: every file is gathered, then finished."""


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """What a run did, for the person who started it."""

    out: Path
    files: int
    bytes: int
    rows: dict[str, int]
    broken_lines: int
    """Findings of severity error about files: what could not be read."""
    outcomes: dict[str, int]


def score(
    paths: Iterable[str | Path],
    *,
    out: str | Path,
    rules: str | Path | None = None,
    scenarios: str | Path | None = None,
    payloads: bool = True,
    jobs: int = 1,
    engine: Any = "local",
    scheduler: str | None = None,
    partition_bytes: int = PARTITION,
    progress: Progress = lambda *_: None,
) -> Summary:
    """Score an archive into a store.

    Args:
        paths: transcript files, folders or patterns.
        out: the store; made anew if it is there. Until all is done the old one stays.
        rules: a TOML file that adds, replaces or disables rules.
        scenarios: a TOML or JSON file that says which calls were tests of what.
        payloads: whether arguments, responses and their text are kept.
        jobs: processes to use at most; 0 means one a core. With more than one, a script needs
            `if __name__ == "__main__":` around what it does, as with every pool of processes.
        engine: "local", "dask", or a `distributed.Client` of a Dask cluster.
        scheduler: address or scheduler file of the Dask cluster; by default what Dask's
            configuration says (`DASK_SCHEDULER_ADDRESS`), or else `jobs` workers on this machine.
        partition_bytes: bytes of transcript that are worked on at a time.
        progress: is told how far the work is.

    Raises:
        UnreadableError: nothing could be read.
        StoreError: `out` holds something else than a store, or another run writes to it.
        RuleError: the rule file cannot be used.
        UsageError: the scenarios file cannot be used, `jobs` is negative, or the engine is none
            or not installed.
    """
    judging = Judging.of(
        rules=Path(rules) if rules else None, scenarios=Path(scenarios) if scenarios else None
    )
    files = discover([paths] if isinstance(paths, (str, Path)) else paths)
    folder = Path(out)
    with (
        opened(engine, scheduler=scheduler, jobs=jobs) as workers,
        store.working(folder) as work,
    ):
        collecting = gc.isenabled()
        gc.disable()  # structs by the hundred thousand, none of them in cycles
        try:
            run = _Run(work, judging, payloads=payloads, progress=progress)
            run.through(plan(files, limit=partition_bytes, jobs=workers.jobs), workers)
        finally:
            if collecting:
                gc.enable()
        if not run.rows[Recordings.name]:
            raise UnreadableError(_nothing(work, files))
        run.sources.sort(key=lambda source: source.file)
        store.publish(folder, work, sources=run.sources, rows=run.rows, rules=judging.digest)
    size = sum(source.size for source in run.sources)
    return Summary(folder, len(files), size, run.rows, run.broken, run.outcomes)


class _Run:
    """One archive on its way through."""

    def __init__(self, work: Path, judging: Judging, *, payloads: bool, progress: Progress) -> None:
        self.work = work
        self.judging = judging
        self.payloads = payloads
        self.progress = progress
        self.rows = dict.fromkeys((table.name for table in TABLES), 0)
        self.outcomes: dict[str, int] = {}
        self.broken = 0
        self.sources: list[store.Source] = []

    def through(self, parts: Sequence[list[Path]], workers: Engine) -> None:
        """Gather every partition, learn what they know together, finish every one."""
        sizes = [sum(map(weight, part)) for part in parts]
        total, done = 2 * sum(sizes), 0

        def gathered(number: int) -> None:
            nonlocal done
            done += sizes[number]
            self.progress(done, total)

        with workers.crew(len(parts), self.work) as crew:
            answers = crew.any(
                [("gather", (number, part)) for number, part in enumerate(parts)], gathered
            )
            learned = dict(enumerate(answers))
            self._untear(crew, parts, learned)
            archive = Knowledge.of([learned[number][1].knowledge for number in sorted(learned)])
            tasks: dict[int, list[tuple[str, tuple[object, ...]]]] = {}
            for number, (member, _) in learned.items():
                settle = ("settle", (archive, self.judging, self.payloads))
                tasks.setdefault(member, [settle]).append(("finish", (number,)))

            def finished(_: int, place: int) -> None:
                nonlocal done
                if place:
                    done += sum(sizes) // len(learned)
                    self.progress(done, total)

            for written in crew.each(tasks, finished):
                if isinstance(written, Written):
                    self._count(written)
        for table, frame in tools(archive).items():
            self.rows[table.name] += store.write_part(self.work, table, "tools", frame)
        self.sources += [source for _, one in learned.values() for source in one.sources]

    def _count(self, written: Written) -> None:
        for name, count in written.rows.items():
            self.rows[name] += count
        for outcome, count in written.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        self.broken += written.broken

    def _untear(
        self,
        crew: Team,
        parts: Sequence[list[Path]],
        learned: dict[int, tuple[int, Learned]],
    ) -> None:
        """Gather again together what shares a recording: a file may hold several of them."""
        files = dict(enumerate(parts))
        while groups := _torn({number: one.recordings for number, (_, one) in learned.items()}):
            for group in groups:
                together = sorted({path for number in group for path in files.pop(number)})
                drops: dict[int, list[tuple[str, tuple[object, ...]]]] = {}
                for number in group:
                    member, _ = learned.pop(number)
                    drops.setdefault(member, []).append(("drop", (number,)))
                crew.each(drops)
                number = min(group)
                files[number] = together
                [learned[number]] = crew.any([("gather", (number, together))])


def _torn(recordings: dict[int, list[str]]) -> list[list[int]]:
    """Groups of partitions that have a recording in common, with what they share it with."""
    leader = {number: number for number in recordings}

    def find(number: int) -> int:
        while leader[number] != number:
            number = leader[number]
        return number

    first: dict[str, int] = {}
    for number, names in recordings.items():
        for name in names:
            leader[find(number)] = find(first.setdefault(name, number))
    groups: dict[int, list[int]] = {}
    for number in recordings:
        groups.setdefault(find(number), []).append(number)
    return [group for group in groups.values() if len(group) > 1]


def _nothing(work: Path, files: Sequence[Path]) -> str:
    """What to say when no file held an event: the first fault of each, up to five."""
    findings = pl.read_parquet(work / Findings.name / "*.parquet")
    first = findings.unique("file", keep="first", maintain_order=True).head(5)
    faults = [
        f"{file}{f':{line}' if line else ''}: {message}"
        for file, line, message in first.select("file", "line", "message").iter_rows()
    ]
    return "\n".join([f"nothing readable in {len(files)} file(s)", *faults])
