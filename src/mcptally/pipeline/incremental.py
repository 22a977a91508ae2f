"""Determines which rows of earlier stores a new run can reuse.

A recording is scored again if one of its files changed, or if a fact about the archive changed that
affects its rows (`affected_recordings`). All other rows are carried over unchanged (`carry_over`).
"""

import functools
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec
import polars as pl

from mcptally.errors import StoreError
from mcptally.pipeline.archive_context import ArchiveContext, StoredSummaries
from mcptally.pipeline.fingerprint import is_same, reuse_blocker
from mcptally.pipeline.invalidation import stale_recordings
from mcptally.pipeline.partition import KnownLint
from mcptally.pipeline.plan import first_recording
from mcptally.protocol.definition_lint import LINT_RULES
from mcptally.store.manifest import MANIFEST, SUMMARIES, live_files, read_manifest
from mcptally.store.parts import ARCHIVE_PART, EMPTY, SKIPPED
from mcptally.store.source_files import SourceFile
from mcptally.store.work_folder import Provenance
from mcptally.tables.findings import Findings
from mcptally.tables.recordings import Recordings
from mcptally.tables.stages import ExcludedFiles, ExcludedRecordings, FilePlaces, RecordingPlaces
from mcptally.transcript.discover import path_of

IN_MEMORY: Final = 1_000_000
"""Maximum number of recording places in memory, at about 150 bytes each. If there are more, they
are read whenever they are needed."""


class Part(NamedTuple):
    """A part of an earlier store, with one file per table."""

    store: int
    """Index of the store in `EarlierStores.folders`."""
    name: str


class EarlierStores(msgspec.Struct, frozen=True):
    """Stores written by earlier runs, and which of their rows are reused.

    If several stores contain a recording, its rows come from the first of them.
    """

    folders: Sequence[Path]
    manifests: Sequence[Mapping[str, Any]]
    """The contents of the stores' `store.json` files, in the same order."""
    sources: Mapping[str, SourceFile]
    """Maps the names of the files in the stores' archives to their state when they were scored."""
    parts: Sequence[Part]
    places: "Places"
    """For each recording, the part that contains its rows, and the files that contain its events
    (`RecordingPlaces`)."""
    file_places: pl.DataFrame
    """For each file, the part that contains the findings about the file itself (`FilePlaces`).
    """
    as_scored: frozenset[str]
    """Recordings that should be scored again but cannot be, because a file is unavailable."""
    conflicting: frozenset[str] = frozenset()
    """Recordings whose files differ between the stores, and are partly unavailable."""
    rescored: frozenset[str] = frozenset()
    """Files whose rows are not reused.

    Files that share a recording are either all included or all left out.
    """
    unavailable: frozenset[str] = frozenset()
    """Files that are gone or changed, and so cannot be scored again; their rows are kept."""
    excluded_recordings: pl.DataFrame = msgspec.field(default_factory=ExcludedRecordings.empty)
    """For each store, the recordings whose rows are taken from another store
    (`ExcludedRecordings`)."""
    excluded_files: pl.DataFrame = msgspec.field(default_factory=ExcludedFiles.empty)
    """For each store, the files whose own findings are taken from another store (`ExcludedFiles`).
    """

    @classmethod
    def read(cls, folders: Sequence[Path], manifests: Sequence[Mapping[str, Any]]) -> Self:
        """Open the stores in these folders; none of their rows is excluded yet."""
        sources: dict[str, SourceFile] = {}
        for manifest in reversed(manifests):
            sources |= {source.file: source for source in manifest["archive"]}
        parts = [
            Part(number, path.stem)
            for number, folder in enumerate(folders)
            for path in live_files(folder, manifests[number])[Recordings.name]
            if not path.stem.startswith(EMPTY)
        ]
        return cls(
            folders,
            manifests,
            sources,
            parts,
            Places.read(folders, parts),
            _file_places(folders, parts),
            frozenset(name for each in manifests for name in each.get("as_scored", ())),
        )

    def file(self, part: Part, table: str) -> Path:
        """Return the path of the file that contains a part's rows of a table."""
        return self.folders[part.store] / table / f"{part.name}.parquet"

    # --- which rows are reused ---

    def without(self, files: Iterable[str]) -> Self:
        """Return these stores without the rows of `files`, and of files that share recordings.

        Rows of unavailable files, and of all files connected with them, are kept; their recordings
        are added to `as_scored`.
        """
        found = self._connected({*files} - self.rescored)
        as_scored = self.as_scored
        if found & self.unavailable:
            kept = self._connected(found & self.unavailable)
            as_scored |= self.recordings_of(kept)
            found -= kept
        return msgspec.structs.replace(self, rescored=self.rescored | found, as_scored=as_scored)

    def without_changed(self, archive: Iterable[str | Path]) -> Self:
        """Return these stores without the rows of files that changed or are not in `archive`.

        The rows of a recording are also left out if the recording has a new segment in `archive`,
        or if an earlier run could not score it again.
        """
        files = {str(file): file for file in archive}
        changed = {
            name
            for name, source in self.sources.items()
            if name not in self.unavailable
            and (name not in files or not is_same(files[name], source))
        }
        new = [file for name, file in files.items() if name not in self.sources]
        continued = {first_recording(path_of(file)) for file in new} - {None}
        changed |= self.files_of(name for name in continued if name)
        changed |= self.files_of(self.as_scored)
        return msgspec.structs.replace(self, as_scored=frozenset()).without(changed)

    def is_same_store(self, files: Iterable[str], made: Provenance) -> bool:
        """Return whether a run over these files would reproduce the existing store.

        Call this on a result of `without_changed`, and only if the run reads all given paths.
        """
        if len(self.manifests) != 1 or self.rescored or self.as_scored or self.conflicting:
            return False
        parts = self.manifests[0]["parts"]
        return (
            self.sources.keys() == {*files}
            and self.manifests[0].get("made_by") == made.made_by
            and not any(name.startswith(f"{Findings.name}/{SKIPPED}") for name in parts)
        )

    def excluding(self, store: int, recordings: Iterable[str]) -> Self:
        """Return these stores without the rows that one of them has for the given recordings."""
        names = pl.DataFrame({"recording": list(recordings)}, schema={"recording": pl.String})
        rows = ExcludedRecordings.select(names.with_columns(store=pl.lit(store, pl.Int64)))
        return msgspec.structs.replace(
            self, excluded_recordings=pl.concat([self.excluded_recordings, rows])
        )

    def _connected(self, files: set[str]) -> set[str]:
        """Return `files` and all files that share recordings with them, directly or indirectly."""
        found, new = set(files), set(files)
        while new:
            here = RecordingPlaces.file.col.is_in(list(new))
            recordings = self.places.all().filter(here).select("recording").unique().collect()
            new = set(_files(self.places.all(), recordings)) - found
            found |= new
        return found

    # --- what is in the stores ---

    def recordings_of(self, files: Iterable[str]) -> set[str]:
        """Return the recordings that have events in any of these files."""
        rows = self.places.all().filter(RecordingPlaces.file.col.is_in(list(files)))
        return set(rows.select("recording").collect().to_series())

    def files_of(self, recordings: Iterable[str] | pl.Series) -> set[str]:
        """Return the files that contain reused rows of any of these recordings."""
        ids = recordings if isinstance(recordings, pl.Series) else list(recordings)
        names = pl.DataFrame({"recording": ids}, schema={"recording": pl.String})
        return set(_files(self.reused(self.places.all()), names))

    def reused_sources(self, files: Container[str]) -> list[SourceFile]:
        """Return the records of the files whose rows are kept: in `files`, or unavailable."""
        return [
            source
            for name, source in self.sources.items()
            if (name in files or name in self.unavailable) and name not in self.rescored
        ]

    def reused(self, places: pl.LazyFrame) -> pl.LazyFrame:
        """Keep the `places` whose file is not scored again and whose recording is reused."""
        return places.filter(~self.is_rescored()).join(
            self.excluded_recordings.lazy(), on=["store", "recording"], how="anti"
        )

    def dropped(self, places: pl.LazyFrame) -> pl.LazyFrame:
        """Keep the `places` that `reused` leaves out."""
        excluded = places.join(
            self.excluded_recordings.lazy(), on=["store", "recording"], how="semi"
        )
        return pl.concat([places.filter(self.is_rescored()), excluded])

    def is_rescored(self) -> pl.Expr:
        """Return an expression that is true if the rows of `file` are not reused."""
        return RecordingPlaces.file.col.is_in(list(self.rescored))

    def changed_servers(self) -> set[str | None]:
        """Return the servers about which the new store will have facts that no earlier store has.

        These are the servers of recordings that are not reused, and servers that occur in several
        stores.
        """
        places = self.places.all()
        # All places of a recording have the same server, so examine only the places that are not
        # reused.
        dropped = self.dropped(places)
        stores = places.group_by("server").agg(RecordingPlaces.store.col.n_unique())
        shared = stores.filter(RecordingPlaces.store.col > 1)
        servers = pl.concat([dropped.select("server"), shared.select("server")])
        return set(servers.unique().collect().to_series())

    # --- what reused rows depend on ---

    def summaries(self, servers: Iterable[str | None]) -> list[StoredSummaries]:
        """Return the summaries of reused recordings.

        Facts that are stored per server are returned only for `servers`.
        """
        chosen = pl.DataFrame({"server": list(servers)}, schema={"server": pl.String})
        return [
            StoredSummaries(
                folder / SUMMARIES,
                [part.name for part in self.parts if part.store == number],
                functools.partial(self._dropped_recordings, number),
                servers=chosen,
            )
            for number, folder in enumerate(self.folders)
        ]

    def _dropped_recordings(self, store: int, parts: Iterable[str]) -> pl.DataFrame:
        """Return the recordings whose rows in the given parts of a store are not reused."""
        places = self.places.of([Part(store, name) for name in parts])
        return self.dropped(places).select("recording").collect()

    def known_lint(self, changed: Iterable[str | None]) -> KnownLint | None:
        """Return the store's findings about definitions, except for the servers in `changed`.

        Returns None if there are several stores, because each store only has findings about its own
        listings.
        """
        if len(self.folders) != 1:
            return None
        changed_servers = pl.DataFrame({"server": list(changed)}, schema={"server": pl.String})
        files = [
            path
            for path in live_files(self.folders[0], self.manifests[0])[Findings.name]
            if path.stem.startswith(ARCHIVE_PART)
        ]
        if not files:
            return None
        findings = Findings.frame(pl.read_parquet(files, glob=False)).filter(
            Findings.rule.col.str.starts_with(LINT_RULES)
        )
        return KnownLint(
            findings.join(changed_servers, on="server", how="anti", nulls_equal=True),
            changed_servers,
        )

    def affected_recordings(
        self, now: ArchiveContext, servers: Iterable[str | None], spool: Path
    ) -> set[str]:
        """Return the recordings whose rows would change, given the archive's current facts.

        Args:
            now: the archive's facts about these servers.
            servers: the servers about which facts were added or removed.
            spool: a folder for temporary files.
        """
        found: set[str] = set()
        for summaries in self.summaries(servers):
            before = ArchiveContext([msgspec.structs.replace(summaries, dropped_of=None)], spool)
            for batch in summaries.batches():
                for rows in stale_recordings(batch, before, now):
                    found |= set(rows.get_column(RecordingPlaces.recording.name))
        return found - self.as_scored


def open_earlier(folder: Path, made: Provenance) -> EarlierStores | str | None:
    """Open the store in a folder if its rows can be reused.

    Otherwise, returns the reason why they cannot be reused, or None if there is no store.
    """
    if not (folder / MANIFEST).exists():
        return None
    try:
        manifest = read_manifest(folder)
    except StoreError as error:
        return str(error).partition("; ")[0]
    return reuse_blocker(folder, manifest, made) or EarlierStores.read([folder], [manifest])


class Places:
    """The `RecordingPlaces` of some stores' parts, either in memory or read when needed."""

    def __init__(
        self, folders: Sequence[Path], parts: Sequence[Part], in_memory: pl.DataFrame | None
    ) -> None:
        self.folders = folders
        self.parts = parts
        self.in_memory = in_memory

    @classmethod
    def read(cls, folders: Sequence[Path], parts: Sequence[Part]) -> Self:
        """Read the places in all parts; keep them in memory if there are at most `IN_MEMORY`."""
        found = cls(folders, parts, None)
        frames, rows = [RecordingPlaces.empty()], 0
        for part in parts:
            frames.append(found.of([part]).collect())
            rows += frames[-1].height
            if rows > IN_MEMORY:
                return found
        return cls(folders, parts, pl.concat(frames))

    def all(self) -> pl.LazyFrame:
        """Return the `RecordingPlaces` of all parts."""
        return self.of(self.parts) if self.in_memory is None else self.in_memory.lazy()

    def of(self, parts: Sequence[Part]) -> pl.LazyFrame:
        """Return the `RecordingPlaces` of the given parts."""
        if self.in_memory is not None:
            chosen = pl.LazyFrame(parts, schema=["store", "part"], orient="row")
            return self.in_memory.lazy().join(chosen, on=["store", "part"], how="semi")
        scans = [
            pl.scan_parquet(
                self.folders[part.store] / Recordings.name / f"{part.name}.parquet", glob=False
            )
            .select("recording", "server", file="files")
            .explode("file", empty_as_null=False)
            .with_columns(store=pl.lit(part.store, pl.Int64), part=pl.lit(part.name))
            .select(*RecordingPlaces.columns())
            for part in parts
        ]
        return pl.concat([RecordingPlaces.empty().lazy(), *scans])


def _files(places: pl.LazyFrame, recordings: pl.DataFrame) -> pl.Series:
    """Return the files in which `places` locates any of these recordings."""
    found = places.join(recordings.lazy(), on="recording", how="semi")
    return found.select("file").unique().collect().to_series()


def _file_places(folders: Sequence[Path], parts: Sequence[Part]) -> pl.DataFrame:
    """Return the `FilePlaces` for the parts of the given stores."""
    files = [FilePlaces.empty()]
    for part in parts:
        path = folders[part.store] / Findings.name / f"{part.name}.parquet"
        if path.exists():
            about = pl.read_parquet(path, columns=["recording", "file"], glob=False)
            rows = about.filter(Findings.recording.col.is_null(), Findings.file.col.is_not_null())
            place = {"store": pl.lit(part.store, pl.Int64), "part": pl.lit(part.name)}
            files.append(FilePlaces.select(rows.with_columns(**place)).unique())
    return pl.concat(files)
