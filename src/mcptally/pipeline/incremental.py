"""What earlier runs made that still holds: parts of stores, without what has to be made again.

A recording is made again when one of its files changed, or when what the archive knows changed in
a way that its rows depend on (`touched`). All other rows are carried over as they are.
"""

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import polars as pl
import pyarrow.parquet as pq

from mcptally.errors import StoreError
from mcptally.pipeline.archive_context import ArchiveContext, Noted
from mcptally.pipeline.fingerprint import reuse_blocker
from mcptally.pipeline.invalidation import stale_recordings
from mcptally.pipeline.partition_summary import KINDS
from mcptally.store import files as store_files
from mcptally.store.files import Made, Source
from mcptally.tables.all_tables import TABLES
from mcptally.tables.calls import Calls
from mcptally.tables.findings import Findings
from mcptally.tables.recordings import Recordings
from mcptally.tables.tools import Tools

SMALL: Final = 4 << 20
"""Bytes in all tables below which a part is small."""

MANY: Final = 8
"""Small parts that stand side by side before they are put into one."""


class Part(NamedTuple):
    """A part of an earlier store: one file per table."""

    store: int
    name: str


class Carried(NamedTuple):
    """What is carried over."""

    written: store_files.Written
    stays: dict[str, Mapping[str, Any]]
    """Files that stay where they are, as the manifest describes them."""


class Earlier:
    """Stores that earlier runs made, and what of them still holds.

    Where several stores are given, with what their `store.json` says, the first has precedence.
    """

    def __init__(self, folders: Sequence[Path], manifests: Sequence[Mapping[str, Any]]) -> None:
        self.folders = folders
        self.manifests = manifests
        self.sources: dict[str, Source] = {}
        """The files of their archives by name, as they were when they were scored."""
        for manifest in manifests:
            for row in manifest["archive"]:
                stat = row.get("stat")
                known = Source(**{**row, "stat": tuple(stat) if stat else None})
                self.sources.setdefault(known.file, known)
        self.as_scored: set[str] = {
            name for manifest in manifests for name in manifest.get("as_scored", ())
        }
        """Recordings that are judged by what an earlier store knew: their files were not there."""
        self.parts = [
            Part(number, path.stem)
            for number, folder in enumerate(folders)
            for path in store_files.live(folder, manifests[number])[Recordings.name]
            if not path.stem.startswith(store_files.EMPTY)
        ]
        self.homes, self.lone = self._places()
        """`store`, `part`, `recording`, `server`, `file`: where rows are; the same, without what is
        of recordings, of files that findings without a recording are about."""
        self.apart: set[str] = set()
        """Recordings of which other stores have pieces that cannot be put together."""
        self.again: set[str] = set()
        """Files whose rows are made again, or gone; with all files that share a recording."""
        self.fixed: set[str] = set()
        """Files that cannot be read any more, or not as they were: their rows stay."""
        self.left_out = self.homes.clear().select("store", "recording")
        """Recordings whose rows in a store are not taken: another store has them, or nobody is
        to have them."""
        self.left_files = self.homes.clear().select("store", "file")
        """The same of files without a recording."""

    def _places(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Which recording has rows in which part and events in which file; and files without."""
        names = ("part", "recording", "server", "file")
        homes = [pl.DataFrame(schema={"store": pl.Int64, **dict.fromkeys(names, pl.String)})]
        lone = [homes[0].select("store", "part", "file")]
        for part in self.parts:
            place = [pl.lit(part.store, pl.Int64).alias("store"), pl.lit(part.name).alias("part")]
            found = pl.read_parquet(
                self._file(part, Recordings.name),
                columns=["recording", "server", "files"],
                glob=False,
            )
            homes.append(found.explode("files").select(*place, "recording", "server", file="files"))
            path = self._file(part, Findings.name)
            if path.exists():
                about = pl.read_parquet(path, columns=["recording", "file"], glob=False)
                lone.append(
                    about.filter(pl.col("recording").is_null(), pl.col("file").is_not_null())
                    .select(*place, "file")
                    .unique()
                )
        return pl.concat(homes), pl.concat(lone)

    def _file(self, part: Part, table: str) -> Path:
        return self.folders[part.store] / table / f"{part.name}.parquet"

    # --- what has to be made again ---

    def drop(self, files: Iterable[str]) -> set[str]:
        """Give up the rows of these files, and of all that share a recording with them.

        Gives the files that were not given up before. Rows that come from a file that cannot be
        read again stay, with all that hang together with them.
        """
        found = self._connected({*files} - self.again)
        if found & self.fixed:
            held = self._connected(found & self.fixed)
            self.as_scored |= self.recordings_of(held)
            found -= held
        self.again |= found
        return found

    def leave_out(self, store: int, recordings: Iterable[str]) -> None:
        """Take no rows of these recordings from a store."""
        more = {"store": store, "recording": pl.Series(list(recordings), dtype=pl.String)}
        schema = self.left_out.schema
        self.left_out = pl.concat([self.left_out, pl.DataFrame(more).cast(schema)])

    def _connected(self, files: set[str]) -> set[str]:
        """These files and all that share a recording with them."""
        found, new = set(files), set(files)
        while new:
            recordings = self.homes.filter(pl.col("file").is_in(list(new))).select("recording")
            near = self.homes.join(recordings.unique(), on="recording", how="semi")
            new = set(near.get_column("file").unique()) - found
            found |= new
        return found

    def recordings_of(self, files: Iterable[str]) -> set[str]:
        """The recordings that have events in these files."""
        return set(self.homes.filter(pl.col("file").is_in(list(files))).get_column("recording"))

    def files_of(self, recordings: Iterable[str]) -> set[str]:
        """The files that hold events of these recordings, as far as their rows still hold."""
        names = pl.DataFrame({"recording": list(recordings)}, schema={"recording": pl.String})
        return set(self._live().join(names, on="recording", how="semi").get_column("file"))

    def dropped_servers(self) -> set[str | None]:
        """Servers of the recordings that were given up."""
        live = self._live()
        return set(self.homes.join(live, on=["store", "recording"], how="anti")["server"])

    def shared_servers(self) -> set[str | None]:
        """Servers that several stores know: each knew less than all do."""
        counts = self.homes.group_by("server").agg(pl.col("store").n_unique())
        return set(counts.filter(pl.col("store") > 1).get_column("server"))

    def _is_again(self) -> pl.Expr:
        return pl.col("file").is_in(list(self.again))

    def _live(self) -> pl.DataFrame:
        return self.homes.filter(~self._is_again()).join(
            self.left_out, on=["store", "recording"], how="anti"
        )

    # --- what is known ---

    def noted(self, servers: Iterable[str | None]) -> list[Noted]:
        """The notes of the rows that hold: those about these servers; of tools, of every one."""
        chosen = pl.DataFrame({"server": list(servers)}, schema={"server": pl.String})
        return [
            Noted(
                folder / store_files.KNOWN,
                [part.name for part in self.parts if part.store == number],
                self._live().filter(store=number).select("recording").unique(),
                chosen,
            )
            for number, folder in enumerate(self.folders)
        ]

    def touched(self, now: ArchiveContext, servers: Iterable[str | None], folder: Path) -> set[str]:
        """Recordings whose rows would be others by what is known now.

        Args:
            now: all that the archive knows of these servers.
            servers: those of which anything is known that was not, or the other way round.
            folder: where files may be put for this.
        """
        found: set[str] = set()
        for noted in self.noted(servers):
            before = ArchiveContext([dataclasses.replace(noted, live=None)], folder)
            for few in noted.by_few():
                for rows in stale_recordings(few, before, now):
                    found |= set(rows.get_column("recording"))
        return found - self.as_scored

    # --- what is carried over ---

    def carry(self, work: Path, target: Path) -> Carried:
        """Carry over what holds.

        Whole parts of the store at `target` stay as they are; parts of others, and what is left of
        a part, go into a work folder.
        """
        number = 0
        small: list[Part] = []
        stays: dict[str, Mapping[str, Any]] = {}
        places = [folder.resolve() for folder in self.folders]

        def carried(part: Part) -> bool:
            if places[part.store] == target.resolve() and self._left(part)[2]:
                stays.update(self._entries(part))
                return False
            return self._carry(work, f"{number:06d}", part)

        for part in self.parts:
            if self._is_small(part):
                small.append(part)
            else:
                number += carried(part)
        if len(small) >= MANY:
            for together in self._heaps(small):
                self._join(work, f"{number:06d}", together)
                number += 1
        else:
            for part in small:
                number += carried(part)
        files = [target / name for name in stays]
        return Carried(_counted([*files, *(path for _, path in store_files.parts(work))]), stays)

    def _entries(self, part: Part) -> dict[str, Mapping[str, Any]]:
        """What the manifest says of a part's files, the notes of it included."""
        names = [
            *(f"{table}/{part.name}.parquet" for table, _ in self._tables(part)),
            *(f"{store_files.KNOWN}/{kind}/{part.name}.parquet" for kind in KINDS),
        ]
        known = self.manifests[part.store]["parts"]
        return {name: known[name] for name in names}

    def _is_small(self, part: Part) -> bool:
        return self._size(part) < SMALL

    def _size(self, part: Part) -> int:
        files = (self._file(part, table.name) for table in TABLES)
        return sum(path.stat().st_size for path in files if path.exists())

    def _heaps(self, parts: Sequence[Part]) -> Iterator[list[Part]]:
        """Parts that together are small no longer: as many as fit into memory with ease."""
        heap: list[Part] = []
        for part in parts:
            heap.append(part)
            if sum(map(self._size, heap)) >= SMALL:
                yield heap
                heap = []
        if heap:
            yield heap

    def _left(self, part: Part) -> tuple[list[str], list[str], bool]:
        """Recordings and files without any of which rows are left in a part; whether all are."""
        here = (pl.col("store") == part.store) & (pl.col("part") == part.name)
        homes, lone = self.homes.filter(here), self.lone.filter(here)
        live = self._live().filter(here).get_column("recording").unique().to_list()
        files = (
            lone.filter(~self._is_again())
            .join(self.left_files, on=["store", "file"], how="anti")
            .get_column("file")
            .to_list()
        )
        every = homes.get_column("recording").n_unique() + lone.height
        return live, files, len(live) + len(files) == every

    def _carry(self, work: Path, name: str, part: Part) -> bool:
        """One part; whether anything of it is left."""
        live, files, whole = self._left(part)
        if not live and not files:
            return False
        for table, source in self._tables(part):
            target = work / table / f"{name}.parquet"
            if whole:
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(source, target)
            else:
                store_files.copy_part(source, target, _keeps(table, live, files))
        if whole:
            for kind in KINDS:
                target = work / store_files.KNOWN / kind / f"{name}.parquet"
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(self._file(part, f"{store_files.KNOWN}/{kind}"), target)
        else:
            store_files.write_known(work, name, self._known_left([(part, live)]))
        return True

    def _join(self, work: Path, name: str, parts: Sequence[Part]) -> None:
        """Many small parts as one."""
        left = [(part, *self._left(part)) for part in parts]
        for table in TABLES:
            frames = [
                _keeps(table.name, live, files)(
                    pl.read_parquet(self._file(part, table.name), glob=False)
                )
                for part, live, files, _ in left
                if self._file(part, table.name).exists()
            ]
            if frames:
                store_files.write_part(work, table, name, pl.concat(frames))
        store_files.write_known(
            work, name, self._known_left([(part, live) for part, live, *_ in left])
        )

    def _known_left(self, left: Sequence[tuple[Part, list[str]]]) -> dict[str, pl.DataFrame]:
        frames = {
            kind: pl.concat(
                [
                    pl.read_parquet(
                        self._file(part, f"{store_files.KNOWN}/{kind}"), glob=False
                    ).filter(
                        pl.col("recording").is_in(live)
                        if kind != "definitions"
                        else pl.lit(value=True)
                    )
                    for part, live in left
                ]
            )
            for kind in KINDS
        }
        frames["definitions"] = (
            frames["definitions"]
            .join(frames["listed"].select("definition").unique(), on="definition", how="semi")
            .unique("definition")
        )
        return frames

    def _tables(self, part: Part) -> Iterator[tuple[str, Path]]:
        for table in TABLES:
            path = self._file(part, table.name)
            if table is not Tools and path.exists():
                yield table.name, path


def earlier(folder: Path, made: Made) -> Earlier | str | None:
    """What a store has for a run that makes rows so; or why it has nothing; None: no store."""
    if not (folder / store_files.MANIFEST).exists():
        return None
    try:
        manifest = store_files.read_manifest(folder)
    except StoreError as error:
        return str(error).partition("; ")[0]
    return reuse_blocker(folder, manifest, made) or Earlier([folder], [manifest])


def _keeps(
    table: str, recordings: Sequence[str], files: Sequence[str]
) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Leaves the rows of these recordings and, among findings, those about these files."""
    chosen = pl.col("recording").is_in(list(recordings))
    if table == Findings.name:
        chosen |= pl.col("recording").is_null() & pl.col("file").is_in(list(files))
    return lambda rows: rows.filter(chosen)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # not every file system has hard links
        shutil.copyfile(source, target)


def _counted(files: Iterable[Path]) -> store_files.Written:
    """What these files of a store hold; notes are passed over."""
    of: dict[str, list[Path]] = {table.name: [] for table in TABLES}
    for path in files:
        if path.parent.parent.name != store_files.KNOWN:
            of[path.parent.name].append(path)
    rows = {
        name: sum(cast("int", pq.read_metadata(path).num_rows) for path in found)
        for name, found in of.items()
    }
    outcomes: dict[str, int] = {}
    broken = 0
    if rows[Calls.name]:
        every = pl.scan_parquet(of[Calls.name], glob=False)
        outcomes = dict(every.group_by("outcome").len().collect().iter_rows())
    if rows[Findings.name]:
        found = pl.scan_parquet(of[Findings.name], glob=False)
        wrong = found.filter(about="file", severity="error").select(pl.len())
        broken = wrong.collect().item()
    return store_files.Written(rows, outcomes, broken)
