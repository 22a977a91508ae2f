"""Merges stores into one, as if their archives had been scored together.

Rows are copied unchanged. If several stores contain the same recording, its rows come from the
first of these stores. A recording is scored again from its transcripts if the merged facts about
its servers change its results, or if the stores have different files of the recording. If the
transcripts are unavailable, the first store's rows are kept, and `store.json` lists the recording
under `as_scored`: a later `score` can score it again.
"""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from mcptally.errors import StoreError, UsageError
from mcptally.pipeline import fingerprint
from mcptally.pipeline.engines import open_engine
from mcptally.pipeline.gathering import Settings
from mcptally.pipeline.incremental import EarlierStores
from mcptally.pipeline.plan import default_partition_bytes
from mcptally.pipeline.run import build, publish
from mcptally.pipeline.scoring import ScoringRules
from mcptally.pipeline.selection import Selection
from mcptally.store.manifest import read_manifest
from mcptally.store.work_folder import Provenance, locked, working
from mcptally.tables.stages import ExcludedFiles, RecordingPlaces
from mcptally.transcript.remote import url_of_path


@dataclasses.dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge."""

    out: Path
    stores: int
    """Number of stores that were merged."""
    files: int
    """Number of files in the merged store's archive."""
    rows: dict[str, int]
    """Number of rows in each table."""
    reused: int
    """Number of files whose rows were copied without scoring."""
    twice: int
    """Number of recordings that more than one store contained."""
    as_scored: list[str]
    """Recordings that should have been scored again, but whose files were not available."""


def merge_stores(
    paths: Sequence[str | Path],
    *,
    out: str | Path,
    rules: str | Path | None = None,
    scenarios: str | Path | None = None,
) -> Merged:
    """Merge several stores into one.

    Args:
        paths: stores scored by this version of mcptally with the same rules and options; earlier
            stores take precedence.
        out: the folder of the merged store; it may be one of `paths`.
        rules: the rule file that the stores were scored with, if any.
        scenarios: the scenarios file that the stores were scored with, if any.

    Raises:
        UsageError: no store is given, `out` is a URL, or two stores have different files with the
            same name.
        StoreError: a path is not a store, or was scored by another version of mcptally or with
            other rules or options.
    """
    folders = list(dict.fromkeys(Path(path) for path in paths))
    if not folders:
        raise UsageError("nothing to merge: name stores")
    if url := url_of_path(Path(out)):
        raise UsageError(f"{url}: stores are merged into a folder; copy it to the URL afterwards")
    for folder in folders:
        read_manifest(folder)  # check all stores before `out` is created
    judging = ScoringRules.of(rules=rules, scenarios=scenarios)
    target = Path(out)
    with contextlib.ExitStack() as stack:
        for folder in folders:
            if folder.resolve() != target.resolve():
                stack.enter_context(locked(folder))
        engine = stack.enter_context(open_engine("local"))
        work = stack.enter_context(working(target))
        manifests = [read_manifest(folder) for folder in folders]
        made = Provenance(
            judging.digest,
            bool(manifests[0].get("payloads")),
            fingerprint.code_digest(),
            made_by="merge",
            selection=manifests[0].get("selection"),
            own_rules=judging.rules.changes,
        )
        for folder, manifest in zip(folders, manifests, strict=True):
            if why := fingerprint.reuse_blocker(folder, manifest, made):
                raise StoreError(
                    f"{folder}: cannot be merged: {why}; score its archive again, and give "
                    "--rules and --scenarios if the stores were scored with them"
                )
        _require_same_files(manifests)
        earlier = EarlierStores.read(folders, manifests)
        unavailable = {
            name
            for name, source in earlier.sources.items()
            if not fingerprint.is_same(name, source)
        }
        earlier = msgspec.structs.replace(earlier, unavailable=frozenset(unavailable))
        earlier, twice = _without_copies(earlier)
        files = [name for name in earlier.sources if name not in earlier.unavailable]
        selection = Selection.from_manifest(manifests[0])
        settings = Settings(
            target,
            work,
            judging,
            made.payloads,
            default_partition_bytes(engine.jobs),
            selection,
        )
        anew = selection.leaves_out_evidence and not unavailable
        built = build(settings, files, engine, None if anew else earlier.without_changed(files))
        summary = publish(settings, built, made)
    return Merged(
        target,
        len(folders),
        summary.files,
        summary.rows,
        summary.reused,
        twice,
        list(built.as_scored),
    )


def _require_same_files(manifests: Sequence[Mapping[str, Any]]) -> None:
    """Raise an error if the same name refers to different files in different stores."""
    digests: dict[str, str] = {}
    for manifest in manifests:
        for source in manifest["archive"]:
            if digests.setdefault(source.file, source.digest) != source.digest:
                raise UsageError(
                    f"{source.file}: means different files in these stores; score the archives "
                    "together"
                )


def _without_copies(earlier: EarlierStores) -> tuple[EarlierStores, int]:
    """Return the stores without duplicate recordings, and the number of duplicated recordings.

    A recording whose files differ between stores is scored again from all of these files; if one of
    them is unavailable, the first store's rows are kept.
    """
    digests = {name: source.digest for name, source in earlier.sources.items()}
    places = earlier.places.all().with_columns(
        digest=RecordingPlaces.file.col.replace_strict(
            digests, default=None, return_dtype=pl.String
        )
    )
    shared = (
        places.group_by("recording", "store")
        .agg(pl.col("digest").unique().sort(), RecordingPlaces.file.col.unique())
        .sort("recording", "store")
        .filter(pl.len().over("recording") > 1)
        .collect()
    )
    later: dict[int, list[str]] = {}
    for (recording,), rows in shared.group_by("recording", maintain_order=True):
        copies = rows.get_column("digest").to_list()
        files = set(rows.explode("file", empty_as_null=False).get_column(RecordingPlaces.file.name))
        if any(each != copies[0] for each in copies):
            if not files & earlier.unavailable:
                earlier = earlier.without(files)
                continue
            conflicting = earlier.conflicting | {str(recording)}
            earlier = msgspec.structs.replace(earlier, conflicting=conflicting)
        for number in rows.get_column(RecordingPlaces.store.name).to_list()[1:]:
            later.setdefault(number, []).append(str(recording))
    for number, recordings in later.items():
        earlier = earlier.excluding(number, recordings)
    copied = earlier.file_places.filter(pl.int_range(pl.len()).over("file") > 0)
    excluded = pl.concat([earlier.excluded_files, ExcludedFiles.select(copied)])
    earlier = msgspec.structs.replace(earlier, excluded_files=excluded)
    return _without_unused_files(earlier), shared.get_column(
        RecordingPlaces.recording.name
    ).n_unique()


def _values(column: pl.LazyFrame) -> pl.Series:
    """Return the distinct values of a one-column table."""
    return column.unique().collect().to_series()


def _without_unused_files(earlier: EarlierStores) -> EarlierStores:
    """Return the stores without the files of which no row is reused."""
    places = earlier.places.all().select("file")
    reused = earlier.reused(earlier.places.all()).select("file")
    used = {*_values(reused), *earlier.file_places.get_column(RecordingPlaces.file.name)}
    unused = {*_values(places)} - used - earlier.rescored
    sources = {name: each for name, each in earlier.sources.items() if name not in unused}
    return msgspec.structs.replace(
        earlier, sources=sources, unavailable=earlier.unavailable - unused
    )
