"""Carries unchanged rows over from earlier stores into a new store.

A part whose rows are all reused is linked, or stays in place. If only some of its rows are reused,
they are copied. Small parts are merged.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import polars as pl

from mcptally.pipeline.incremental import EarlierStores, Part
from mcptally.pipeline.partition_summary import KINDS
from mcptally.store.manifest import SUMMARIES
from mcptally.store.parts import (
    Written,
    copy_part,
    part_files,
    write_part,
    write_summary,
)
from mcptally.tables.all_tables import TABLES
from mcptally.tables.calls import Calls
from mcptally.tables.findings import Findings
from mcptally.tables.stages import Listings, RecordingPlaces
from mcptally.tables.tools import Tools

SMALL: Final = 4 << 20
"""Total size in bytes of a part's tables below which the part is small."""

MANY: Final = 8
"""Minimum number of small parts at which they are merged."""


class CarriedOver(NamedTuple):
    """The result of carrying rows over into a new store."""

    written: Written
    kept: dict[str, Mapping[str, Any]]
    """Maps the names of files that stay in place to their manifest entries."""


class _Reused(NamedTuple):
    """Which rows of a part are reused."""

    recordings: list[str]
    files: list[str]
    """Files whose own findings, which concern no recording, are reused."""
    whole: bool
    """Whether all rows of the part are reused."""


def carry_over(earlier: EarlierStores, work: Path, target: Path) -> CarriedOver:
    """Carry the reused rows of earlier stores over into the store at `target`.

    Parts of this store whose rows are all reused stay in place; other rows are written to the work
    folder.
    """
    number = 0
    small: list[Part] = []
    kept: dict[str, Mapping[str, Any]] = {}
    folders = [folder.resolve() for folder in earlier.folders]

    def written(part: Part) -> bool:
        if folders[part.store] == target.resolve() and _reused(earlier, part).whole:
            kept.update(_manifest_entries(earlier, part))
            return False
        return _copy(earlier, work, f"{number:06d}", part)

    for part in earlier.parts:
        if _size(earlier, part) < SMALL:
            small.append(part)
        else:
            number += written(part)
    if len(small) >= MANY:
        for parts in _groups(earlier, small):
            _join(earlier, work, f"{number:06d}", parts)
            number += 1
    else:
        for part in small:
            number += written(part)
    files = [*(target / name for name in kept), *(path for _, path in part_files(work))]
    return CarriedOver(count_rows(files), kept)


def _reused(earlier: EarlierStores, part: Part) -> _Reused:
    here = (RecordingPlaces.store.col == part.store) & (RecordingPlaces.part.col == part.name)
    places, files = earlier.places.of([part]), earlier.file_places.filter(here)
    reused = earlier.reused(places).select("recording").unique().collect()
    recordings = reused.to_series().to_list()
    names = (
        files.filter(~earlier.is_rescored())
        .join(earlier.excluded_files, on=["store", "file"], how="anti")
        .get_column(RecordingPlaces.file.name)
        .to_list()
    )
    every = places.select(RecordingPlaces.recording.col.n_unique()).collect().item() + files.height
    return _Reused(recordings, names, len(recordings) + len(names) == every)


def _manifest_entries(earlier: EarlierStores, part: Part) -> dict[str, Mapping[str, Any]]:
    """Map the names of all files of a part, including its summary, to their manifest entries."""
    names = [
        *(f"{table}/{part.name}.parquet" for table, _ in _tables(earlier, part)),
        *(f"{SUMMARIES}/{kind}/{part.name}.parquet" for kind in KINDS),
    ]
    entries = earlier.manifests[part.store]["parts"]
    return {name: entries[name] for name in names}


def _size(earlier: EarlierStores, part: Part) -> int:
    files = (earlier.file(part, table.name) for table in TABLES)
    return sum(path.stat().st_size for path in files if path.exists())


def _groups(earlier: EarlierStores, parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Divide small parts into groups to merge; to limit memory, a group ends at `SMALL` bytes."""
    group: list[Part] = []
    for part in parts:
        group.append(part)
        if sum(_size(earlier, each) for each in group) >= SMALL:
            yield group
            group = []
    if group:
        yield group


def _copy(earlier: EarlierStores, work: Path, name: str, part: Part) -> bool:
    """Link a part into the work folder, or copy its reused rows; return False if there are none."""
    reused = _reused(earlier, part)
    if not reused.recordings and not reused.files:
        return False
    for table, source in _tables(earlier, part):
        target = work / table / f"{name}.parquet"
        if reused.whole:
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(source, target)
        else:
            copy_part(source, target, _row_filter(table, reused))
    if reused.whole:
        for kind in KINDS:
            target = work / SUMMARIES / kind / f"{name}.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(earlier.file(part, f"{SUMMARIES}/{kind}"), target)
    else:
        write_summary(work, name, _summary(earlier, [(part, reused)]))
    return True


def _join(earlier: EarlierStores, work: Path, name: str, parts: Sequence[Part]) -> None:
    """Merge the reused rows of several parts into one part."""
    reused = [(part, _reused(earlier, part)) for part in parts]
    for table in TABLES:
        frames = [
            _row_filter(table.name, rows)(
                pl.read_parquet(earlier.file(part, table.name), glob=False)
            )
            for part, rows in reused
            if earlier.file(part, table.name).exists()
        ]
        if frames:
            write_part(work, table, name, pl.concat(frames))
    write_summary(work, name, _summary(earlier, reused))


def _summary(
    earlier: EarlierStores, reused: Sequence[tuple[Part, _Reused]]
) -> dict[str, pl.DataFrame]:
    """Return the summary of the reused recordings in some parts, as one frame per kind of rows."""

    def read(part: Part, kind: str, recordings: list[str]) -> pl.DataFrame:
        path = earlier.file(part, f"{SUMMARIES}/{kind}")
        rows = pl.read_parquet(path, glob=False)
        return (
            rows if kind == "definitions" else rows.filter(Listings.recording.col.is_in(recordings))
        )

    frames = {
        kind: pl.concat([read(part, kind, rows.recordings) for part, rows in reused])
        for kind in KINDS
    }
    listed = frames["listed"].select("definition").unique()
    frames["definitions"] = (
        frames["definitions"].join(listed, on="definition", how="semi").unique("definition")
    )
    return frames


def _tables(earlier: EarlierStores, part: Part) -> Iterator[tuple[str, Path]]:
    """Yield the name and file of each table of a part, except `tools`, which every run rewrites."""
    for table in TABLES:
        path = earlier.file(part, table.name)
        if table is not Tools and path.exists():
            yield table.name, path


def _row_filter(table: str, reused: _Reused) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return a function that filters a table's rows, keeping only those that are reused."""
    chosen = Findings.recording.col.is_in(reused.recordings)
    if table == Findings.name:
        chosen |= Findings.recording.col.is_null() & Findings.file.col.is_in(reused.files)
    return lambda rows: rows.filter(chosen)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # not every file system supports hard links
        shutil.copyfile(source, target)


def count_rows(files: Iterable[Path]) -> Written:
    """Count the rows of each table in the given files of a store, ignoring summaries."""
    import pyarrow.parquet as pq  # noqa: PLC0415  (only runs that change nothing count rows)

    by_table: dict[str, list[Path]] = {table.name: [] for table in TABLES}
    for path in files:
        if path.parent.parent.name != SUMMARIES:
            by_table[path.parent.name].append(path)
    rows = {
        name: sum(cast("int", pq.read_metadata(path).num_rows) for path in paths)
        for name, paths in by_table.items()
    }
    outcomes: dict[str, int] = {}
    broken = 0
    if rows[Calls.name]:
        calls = pl.scan_parquet(by_table[Calls.name], glob=False)
        outcomes = dict(calls.group_by("outcome").len().collect().iter_rows())
    if rows[Findings.name]:
        findings = pl.scan_parquet(by_table[Findings.name], glob=False)
        errors = findings.filter(about="file", severity="error").select(pl.len())
        broken = errors.collect().item()
    return Written(rows, outcomes, broken)
