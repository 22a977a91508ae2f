"""The line from archive to store, in a dozen statements.

discover → plan → gather each partition → what the archive knows → finish each → publish
"""

import dataclasses
import gc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from mcptally import store
from mcptally.archive import discover
from mcptally.errors import UnreadableError
from mcptally.partition import Gathered, Knowledge, finish, gather, tools
from mcptally.schema import TABLES, Calls, Findings, Recordings, Tools

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
    payloads: bool = True,
    partition_bytes: int = PARTITION,
) -> Summary:
    """Score an archive into a store.

    Args:
        paths: transcript files, folders or patterns.
        out: the store; made anew if it is there.
        payloads: whether arguments, responses and their text are kept.
        partition_bytes: bytes of transcript that are worked on at a time.

    Raises:
        UnreadableError: nothing could be read.
        StoreError: `out` holds something else than a store.
    """
    files = discover([paths] if isinstance(paths, (str, Path)) else paths)
    folder = Path(out)
    work = store.prepare(folder)
    gc.disable()  # structs by the hundred thousand, none of them in cycles
    try:
        spool = _Spool(work / "spool")
        known = []
        for part in plan(files, partition_bytes):
            gathered = gather(part, [str(path) for path in part])
            known.append((gathered.listed, gathered.definitions))
            spool.put(gathered)
        archive = Knowledge.of(known)
        rows = dict.fromkeys((table.name for table in TABLES), 0)
        outcomes: dict[str, int] = {}
        broken = 0
        for number, gathered in enumerate(spool):
            tables = finish(gathered, archive, payloads=payloads)
            for table, frame in tables.items():
                rows[table.name] += store.write_part(work, table, f"{number:06d}", frame)
            for outcome, count in tables[Calls].group_by("outcome").len().iter_rows():
                outcomes[outcome] = outcomes.get(outcome, 0) + count
            broken += tables[Findings].filter(about="file", severity="error").height
        rows[Tools.name] = store.write_part(work, Tools, "tools", tools(archive))
    finally:
        gc.enable()
    if not rows[Recordings.name]:
        raise UnreadableError(_nothing(work, files))
    sources = [store.source_of(path) for path in files]
    store.publish(folder, work, sources=sources, rows=rows, rules="default")
    return Summary(
        folder, len(files), sum(source.size for source in sources), rows, broken, outcomes
    )


def plan(files: Sequence[Path], limit: int) -> Iterator[list[Path]]:
    """Files that belong together, about `limit` bytes of transcript at a time.

    Segments of a recording share the part of their name before the segment's number.
    """
    group: list[Path] = []
    size = 0
    for path in files:
        weight = path.stat().st_size * (1 if path.suffix == ".jsonl" else EXPANSION)
        if group and size + weight > limit:
            yield group
            group, size = [], 0
        group.append(path)
        size += weight
    if group:
        yield group


class _Spool:
    """Gathered partitions that wait for what the archive knows: one in memory, more on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.held: Gathered | None = None

    def put(self, part: Gathered) -> None:
        if self.held is not None:
            self._write(self.held)
        self.held = part

    def _write(self, part: Gathered) -> None:
        target = self.folder / f"{self.count:06d}"
        target.mkdir(parents=True)
        for field in dataclasses.fields(part):
            frame: pl.DataFrame = getattr(part, field.name)
            frame.write_ipc(target / f"{field.name}.arrow", compression="uncompressed")
        self.count += 1

    def __iter__(self) -> Iterator[Gathered]:
        for number in range(self.count):
            folder = self.folder / f"{number:06d}"
            names = [field.name for field in dataclasses.fields(Gathered)]
            yield Gathered(*(pl.read_ipc(folder / f"{name}.arrow") for name in names))
        if self.held is not None:
            yield self.held


def _nothing(work: Path, files: Sequence[Path]) -> str:
    """What to say when no file held an event: the first fault of each, up to five."""
    findings = pl.read_parquet(work / Findings.name / "*.parquet")
    first = findings.unique("file", keep="first", maintain_order=True).head(5)
    faults = [
        f"{file}{f':{line}' if line else ''}: {message}"
        for file, line, message in first.select("file", "line", "message").iter_rows()
    ]
    return "\n".join([f"nothing readable in {len(files)} file(s)", *faults])
