"""The line from archive to store, in a dozen statements.

discover → plan → gather each partition → what the archive knows → finish each → publish
"""

import dataclasses
import gc
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import polars as pl
import zstandard

from mcptally import store
from mcptally.archive import discover, open_stream
from mcptally.errors import McptallyError, UnreadableError
from mcptally.partition import Gathered, Knowledge, finish, gather, tools
from mcptally.schema import TABLES, Calls, Findings, Recordings
from mcptally.scoring import Judging

PARTITION: Final = 96 << 20
"""Bytes of transcript that a partition holds at most, unless one group of files is larger."""

EXPANSION: Final = 8
"""How much a compressed transcript grows: real ones shrink by 5 to 10."""


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
    partition_bytes: int = PARTITION,
) -> Summary:
    """Score an archive into a store.

    Args:
        paths: transcript files, folders or patterns.
        out: the store; made anew if it is there.
        rules: a TOML file that adds, replaces or disables rules.
        scenarios: a TOML or JSON file that says which calls were tests of what.
        payloads: whether arguments, responses and their text are kept.
        partition_bytes: bytes of transcript that are worked on at a time.

    Raises:
        UnreadableError: nothing could be read.
        StoreError: `out` holds something else than a store.
        RuleError: the rule file cannot be used.
        UsageError: the scenarios file cannot be used.
    """
    judging = Judging.of(
        rules=Path(rules) if rules else None, scenarios=Path(scenarios) if scenarios else None
    )
    files = discover([paths] if isinstance(paths, (str, Path)) else paths)
    folder = Path(out)
    work = store.prepare(folder)
    gc.disable()  # structs by the hundred thousand, none of them in cycles
    try:
        spool = _Spool(work / "spool")
        for part in plan(files, partition_bytes):
            spool.put(part)
        archive = Knowledge.of(spool.known())
        broken = 0
        rows = dict.fromkeys((table.name for table in TABLES), 0)
        outcomes: dict[str, int] = {}
        for number, gathered in enumerate(spool):
            tables = finish(gathered, archive, judging, payloads=payloads)
            for table, frame in tables.items():
                rows[table.name] += store.write_part(work, table, f"{number:06d}", frame)
            for outcome, count in tables[Calls].group_by("outcome").len().iter_rows():
                outcomes[outcome] = outcomes.get(outcome, 0) + count
            broken += tables[Findings].filter(about="file", severity="error").height
        for table, frame in tools(archive).items():
            rows[table.name] += store.write_part(work, table, "tools", frame)
    finally:
        gc.enable()
    if not rows[Recordings.name]:
        raise UnreadableError(_nothing(work, files))
    sources = [store.source_of(path) for path in files]
    store.publish(folder, work, sources=sources, rows=rows, rules=judging.digest)
    return Summary(
        folder, len(files), sum(source.size for source in sources), rows, broken, outcomes
    )


def plan(files: Sequence[Path], limit: int) -> Iterator[list[Path]]:
    """Files that belong together, about `limit` bytes of transcript at a time.

    Files whose first event is of the same recording are its segments and stay together.
    """
    families: dict[str, list[Path]] = {}
    for path in files:
        families.setdefault(_first_recording(path) or str(path), []).append(path)
    group: list[Path] = []
    size = 0
    for family in families.values():
        weight = sum(
            path.stat().st_size * (1 if path.suffix == ".jsonl" else EXPANSION) for path in family
        )
        if group and size + weight > limit:
            yield sorted(group)
            group, size = [], 0
        group += family
        size += weight
    if group:
        yield sorted(group)


class _Head(msgspec.Struct):
    recording: str


def _first_recording(path: Path) -> str | None:
    """The recording of a file's first event, if its first line is one."""
    try:
        with open_stream(path) as stream:
            return msgspec.json.decode(stream.readline(_HEAD_LIMIT), type=_Head).recording
    except (McptallyError, OSError, EOFError, zlib.error, zstandard.ZstdError, ValueError):
        return None  # said when the file is read


_HEAD_LIMIT: Final = 1 << 20


_SPOOLED: Final = ("calls", "messages", "findings", "recordings")


class _Spool:
    """Gathered partitions that wait for what the archive knows: the last in memory, more on disk.

    A recording that turns up in two partitions (a file may hold several) makes one of them: their
    files are gathered again, together.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: dict[int, list[Path]] = {}
        self.of: dict[str, int] = {}
        """Recording → number of its partition."""
        self.learned: dict[int, Knowledge] = {}
        self.held: tuple[int, Gathered] | None = None

    def put(self, files: list[Path]) -> None:
        """Gather a partition and keep it."""
        number = max(self.parts, default=-1) + 1
        part = gather(files, [str(path) for path in files])
        recordings = part.recordings.get_column("recording").to_list()
        shared = {self.of[name] for name in recordings if name in self.of}
        if shared:
            together = sorted({*files, *(path for other in shared for path in self.parts[other])})
            for other in shared:
                self._drop(other)
            self.put(together)
            return
        self.parts[number] = files
        self.of.update(dict.fromkeys(recordings, number))
        self.learned[number] = part.learned
        if self.held is not None:
            self._write(*self.held)
        self.held = (number, part)

    def known(self) -> list[Knowledge]:
        """What every partition knows."""
        return [self.learned[number] for number in sorted(self.learned)]

    def _drop(self, number: int) -> None:
        del self.parts[number], self.learned[number]
        self.of = {name: part for name, part in self.of.items() if part != number}
        if self.held is not None and self.held[0] == number:
            self.held = None
        else:
            shutil.rmtree(self.folder / f"{number:06d}")

    def _write(self, number: int, part: Gathered) -> None:
        target = self.folder / f"{number:06d}"
        target.mkdir(parents=True)
        for name in _SPOOLED:
            frame: pl.DataFrame = getattr(part, name)
            frame.write_ipc(target / f"{name}.arrow", compression="uncompressed")

    def __iter__(self) -> Iterator[Gathered]:
        for number in sorted(self.parts):
            if self.held is not None and self.held[0] == number:
                yield self.held[1]
            else:
                folder = self.folder / f"{number:06d}"
                frames = {name: pl.read_ipc(folder / f"{name}.arrow") for name in _SPOOLED}
                yield Gathered(**frames, learned=self.learned[number])
                shutil.rmtree(folder)


def _nothing(work: Path, files: Sequence[Path]) -> str:
    """What to say when no file held an event: the first fault of each, up to five."""
    findings = pl.read_parquet(work / Findings.name / "*.parquet")
    first = findings.unique("file", keep="first", maintain_order=True).head(5)
    faults = [
        f"{file}{f':{line}' if line else ''}: {message}"
        for file, line, message in first.select("file", "line", "message").iter_rows()
    ]
    return "\n".join([f"nothing readable in {len(files)} file(s)", *faults])
