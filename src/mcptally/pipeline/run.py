"""The line from archive to store, in a dozen statements.

discover → plan → gather each partition → what the archive knows → finish each → publish

Where the store is there already, only files that changed are gathered, with those whose rows depend
on what changed; the rest is carried over (`reuse`).
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from mcptally.errors import UnreadableError
from mcptally.pipeline import fingerprint, incremental
from mcptally.pipeline.archive_context import ArchiveContext, Noted
from mcptally.pipeline.engines import Engine, opened
from mcptally.pipeline.engines.local import Task, Team
from mcptally.pipeline.engines.worker import Learned
from mcptally.pipeline.partition import tools
from mcptally.pipeline.partition_summary import NEEDS
from mcptally.pipeline.plan import first_recording, found, held_of, limit_of, plan, weight
from mcptally.pipeline.scoring import Judging
from mcptally.process_memory import gc_paused
from mcptally.store import files as store_files
from mcptally.store.remote_copy import local_copy
from mcptally.tables.all_tables import TABLES
from mcptally.tables.findings import Finding, Findings, findings_frame
from mcptally.tables.recordings import Recordings
from mcptally.transcript.discover import PassedOver
from mcptally.transcript.remote import is_url

Progress = Callable[[int, int], None]
"""Called with bytes of work done and bytes in all: every file is gathered, then finished."""


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """What a run did, for the person who started it."""

    out: str | Path
    files: int
    """Files of the archive, read now or reused."""
    bytes: int
    """Their size on disk."""
    rows: dict[str, int]
    """Rows of each table that the store has now."""
    broken_lines: int
    """Findings of severity error about files: what could not be read."""
    outcomes: dict[str, int]
    """Calls by their outcome."""
    reused: int = 0
    """Files whose rows are those of an earlier run."""
    in_full: str | None = None
    """Why nothing of the store that was there could be reused."""


def score(
    paths: Iterable[str | Path],
    *,
    out: str | Path,
    rules: str | Path | None = None,
    scenarios: str | Path | None = None,
    payloads: bool = True,
    full: bool = False,
    jobs: int = 1,
    engine: Any = "local",
    scheduler: str | None = None,
    partition_bytes: int | None = None,
    progress: Progress = lambda *_: None,
) -> Summary:
    """Score an archive into a store.

    Args:
        paths: transcript files, folders or patterns; URLs such as s3://bucket/traces, too.
        out: the store, a folder or a URL. If it is there, what did not change in it is reused;
            until all is done it stays as it was.
        rules: a TOML file that adds, replaces or disables rules.
        scenarios: a TOML or JSON file that says which calls were tests of what.
        payloads: whether arguments, responses and their text are kept.
        full: whether every file is scored again, changed or not.
        jobs: processes to use at most; 0 means one a core. With more than one, a script needs
            `if __name__ == "__main__":` around what it does, as with every pool of processes.
        engine: "local", "dask", or a `distributed.Client` of a Dask cluster.
        scheduler: address or scheduler file of the Dask cluster; by default what Dask's
            configuration says (`DASK_SCHEDULER_ADDRESS`), or else `jobs` workers on this machine.
        partition_bytes: bytes of transcript that a process works on at a time; by default 120 MiB,
            and twice as many where one works alone.
        progress: is told how far the work is.

    Raises:
        UnreadableError: nothing could be read.
        StoreError: `out` holds something else than a store, or another run writes to it.
        RuleError: the rule file cannot be used.
        UsageError: the scenarios file cannot be used, `jobs` is negative, or the engine, or what
            a URL takes, is none or not installed.
        McptallyError: a cluster or a URL cannot be reached, or a process of the run died.
    """
    judging = Judging.of(
        rules=Path(rules) if rules else None, scenarios=Path(scenarios) if scenarios else None
    )
    out_of_reach: list[PassedOver] = []
    files = found([paths] if isinstance(paths, (str, Path)) else paths, out_of_reach.append)
    parcels = f"{out}/{store_files.WORK}" if isinstance(out, str) and is_url(out) else None
    with (
        local_copy(out, full=full) as folder,
        opened(engine, scheduler=scheduler, jobs=jobs, parcels=parcels) as workers,
        store_files.working(folder) as work,
    ):
        made = store_files.Made(
            judging.digest,
            payloads,
            fingerprint.code_digest(),
            forgotten=store_files.forgotten(folder),
        )
        before = incremental.earlier(folder, made)
        kept = None if full or isinstance(before, str) else before
        run = Run(folder, work, judging, kept, payloads=payloads, progress=progress)
        with gc_paused():
            run.through(files, workers, limit=partition_bytes or limit_of(workers.jobs))
            run.tell(out_of_reach)
        summary = run.publish(made)
    return dataclasses.replace(
        summary, out=out, in_full=before if isinstance(before, str) and not full else None
    )


class Run:
    """One archive on its way through."""

    def __init__(
        self,
        folder: Path,
        work: Path,
        judging: Judging,
        kept: incremental.Earlier | None,
        *,
        payloads: bool,
        progress: Progress,
    ) -> None:
        self.folder = folder
        """The store."""
        self.work = work
        self.judging = judging
        self.kept = kept
        self.stays: dict[str, Mapping[str, Any]] = {}
        """Files of the store that stay, as its manifest describes them."""
        self.payloads = payloads
        self.progress = progress
        self.rows = dict.fromkeys((table.name for table in TABLES), 0)
        self.outcomes: dict[str, int] = {}
        self.broken = 0
        self.sources: list[store_files.Source] = []
        self.reused: set[str] = set()
        self.learned: dict[int, tuple[int, Learned]] = {}
        self.given: dict[str, Path] = {}
        """The files that were named, by name."""
        self.members: dict[int, list[Path]] = {}
        """The files of each partition."""
        self.given_out = len(kept.parts) if kept else -1
        """The last number of a partition; below are those of parts that are carried over."""
        self.size = self.done = 0
        """Bytes that are worked on, and how much of that is done; a file counts twice."""

    def through(self, files: Sequence[Path], workers: Engine, *, limit: int) -> None:
        """Gather what changed, learn what all know together, finish what depends on it."""
        todo = plan(self._changed(files), limit=limit, jobs=workers.jobs)
        ledger = None
        with workers.crew(max(1, len(todo)), self.work, held_of(limit)) as crew:
            while ledger is None:
                self._gather(crew, todo)
                self._untear(crew)
                again, ledger = self._more()
                todo = plan(again, limit=limit, jobs=workers.jobs)
            if self.kept:
                carried, self.stays = self.kept.carry(self.work, self.folder)
                self._count(carried)
            self._finish(crew, ledger)
        for table, frame in tools(ledger.whole(), ledger.seen.rows).items():
            self.rows[table.name] += store_files.write_part(self.work, table, "tools", frame)
        self.sources += [source for _, one in self.learned.values() for source in one.sources]
        self.sources.sort(key=lambda source: source.file)
        store_files.sweep_known(self.work)

    def publish(self, made: store_files.Made) -> Summary:
        """Make what was made the store, and remove the files of the one before.

        Raises:
            UnreadableError: nothing could be read.
        """
        if not self.rows[Recordings.name]:
            raise UnreadableError(_nothing(self.work, [source.file for source in self.sources]))
        as_scored = sorted(self.kept.as_scored | self.kept.apart) if self.kept else ()
        made = dataclasses.replace(made, as_scored=as_scored)
        store_files.publish(
            self.folder,
            self.work,
            sources=self.sources,
            rows=self.rows,
            made=made,
            kept=self.stays,
        )
        if (self.folder / store_files.VIEWS).exists():
            # The views name live files, so they follow before `working` removes the others.
            from mcptally.analytics import duckdb_file  # noqa: PLC0415  (it loads what only questions need)

            duckdb_file.refresh(self.folder)
        size = sum(source.size for source in self.sources)
        return Summary(
            self.folder,
            len(self.sources),
            size,
            self.rows,
            self.broken,
            self.outcomes,
            len(self.reused),
        )

    def tell(self, found: Sequence[PassedOver]) -> None:
        """Findings on what was not read: links out of a folder, and what is no file."""
        rows = [
            Finding("archive.not_followed", "warning", "file", each.why, file=each.name)
            for each in found
        ]
        if rows:
            frame = findings_frame(rows)
            self.rows[Findings.name] += store_files.write_part(
                self.work, Findings, "passed-over", frame
            )

    def _changed(self, files: Sequence[Path]) -> list[Path]:
        """The files that have to be gathered, as far as they can be told by looking at them."""
        if self.kept is None:
            return list(files)
        given = self.given = {str(path): path for path in files}
        changed = {
            name
            for name, source in self.kept.sources.items()
            if name not in self.kept.fixed
            and (name not in given or not fingerprint.is_same(given[name], source))
        }
        new = given.keys() - self.kept.sources.keys()
        # A new segment of a recording brings back the others.
        heads = {first_recording(given[name]) for name in new} - {None}
        changed |= self.kept.files_of(name for name in heads if name)
        waiting, self.kept.as_scored = self.kept.as_scored, set()
        changed |= self.kept.files_of(waiting)
        self.kept.drop(changed)
        again = self.kept.again
        self.reused = (given.keys() | self.kept.fixed) - again - new
        self.sources = [self.kept.sources[name] for name in sorted(self.reused)]
        return [given[name] for name in sorted((again | new) & given.keys())]

    def _more(self) -> tuple[list[Path], ArchiveContext | None]:
        """Files that have to be gathered because of what was gathered so far.

        If there are none, also what all know together.
        """
        if self.kept is None:
            return [], self._ledger()
        ledger = None
        here = {name for _, one in self.learned.values() for name in one.recordings}
        again = self.kept.drop(self.kept.files_of(here))
        if not again:
            ledger = self._ledger()
            touched = self.kept.touched(ledger, self._servers(), self._spool)
            again = self.kept.drop(self.kept.files_of(touched))
        self.reused -= again
        self.sources = [source for source in self.sources if source.file not in again]
        files = [self.given.get(name) or Path(name) for name in sorted(again)]
        return files, None if files else ledger

    def _servers(self) -> set[str | None]:
        assert self.kept is not None  # noqa: S101  (asked only where something is kept)
        here = {name for _, one in self.learned.values() for name in one.servers}
        return here | self.kept.dropped_servers() | self.kept.shared_servers()

    @property
    def _spool(self) -> Path:
        return self.work / "spool"

    def _noted(self, numbers: Iterable[int]) -> Noted:
        return Noted(self.work / store_files.KNOWN, [f"{number:06d}" for number in numbers])

    def _ledger(self) -> ArchiveContext:
        """What is known of the servers at hand, and of all tools."""
        kept = self.kept.noted(self._servers()) if self.kept else []
        return ArchiveContext([self._noted(sorted(self.learned)), *kept], self._spool)

    def _gather(self, crew: Team, parts: Sequence[list[Path]]) -> None:
        """Gather partitions."""
        first = self.given_out + 1
        self.given_out += len(parts)
        sizes = [sum(map(weight, part)) for part in parts]
        self.size += sum(sizes)

        def gathered(place: int) -> None:
            self.done += sizes[place]
            self.progress(self.done, 2 * self.size)

        tasks = [("gather", (first + place, part)) for place, part in enumerate(parts)]
        for place, answer in enumerate(crew.any(tasks, gathered)):
            self.learned[first + place] = answer
            self.members[first + place] = parts[place]

    def _finish(self, crew: Team, ledger: ArchiveContext) -> None:
        """Judge every partition that was gathered."""
        members: dict[int, list[int]] = {}
        for number, (member, _) in self.learned.items():
            members.setdefault(member, []).append(number)

        def tasks(numbers: Iterable[int]) -> Iterator[Task]:
            yield "settle", (self.judging, self.payloads)
            for number in numbers:
                noted = self._noted([number])
                own = noted.read("listed", ["definition"]).get_column("definition")
                yield "finish", (number, ledger.excerpt(noted.read(NEEDS), own))

        def finished(_: int, place: int) -> None:
            if place:
                self.done += self.size // len(self.learned)
                self.progress(self.done, 2 * self.size)

        each = {member: tasks(numbers) for member, numbers in members.items()}
        for written in crew.each(each, finished):
            if isinstance(written, store_files.Written):
                self._count(written)

    def _count(self, written: store_files.Written) -> None:
        for name, count in written.rows.items():
            self.rows[name] += count
        for outcome, count in written.outcomes.items():
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
        self.broken += written.broken

    def _untear(self, crew: Team) -> None:
        """Gather again together what shares a recording: a file may hold several of them."""
        while groups := _torn({key: one.recordings for key, (_, one) in self.learned.items()}):
            for group in groups:
                together = sorted({path for number in group for path in self.members.pop(number)})
                drops: dict[int, list[tuple[str, tuple[object, ...]]]] = {}
                for number in group:
                    member, _ = self.learned.pop(number)
                    drops.setdefault(member, []).append(("drop", (number,)))
                crew.each(drops)
                # Never one that was given: whoever is late with that must not be in the way.
                self.given_out += 1
                number = self.given_out
                self.members[number] = together
                [self.learned[number]] = crew.any([("gather", (number, together))])


def _torn(recordings: dict[int, pl.Series]) -> list[list[int]]:
    """Groups of partitions that have a recording in common, with what they share it with."""
    every = [
        pl.DataFrame({"recording": names}).with_columns(number=pl.lit(number, pl.Int64))
        for number, names in recordings.items()
    ]
    shared = (
        pl.concat([pl.DataFrame(schema={"recording": pl.String, "number": pl.Int64}), *every])
        .group_by("recording")
        .agg("number")
        .filter(pl.col("number").list.len() > 1)
    )
    leader = {number: number for number in recordings}

    def find(number: int) -> int:
        while leader[number] != number:
            number = leader[number]
        return number

    for first, *others in shared.get_column("number").to_list():
        for other in others:
            leader[find(other)] = find(first)
    groups: dict[int, list[int]] = {}
    for number in recordings:
        groups.setdefault(find(number), []).append(number)
    return [group for group in groups.values() if len(group) > 1]


def _nothing(work: Path, files: Sequence[str]) -> str:
    """What to say when no file held an event: the first fault of each, up to five."""
    findings = pl.read_parquet(sorted((work / Findings.name).glob("*.parquet")), glob=False)
    first = findings.unique("file", keep="first", maintain_order=True).head(5)
    faults = [
        f"{file}{f':{line}' if line else ''}: {message}"
        for file, line, message in first.select("file", "line", "message").iter_rows()
    ]
    return "\n".join([f"nothing readable in {len(files)} file(s)", *faults])
