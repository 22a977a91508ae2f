"""Stores put into one, as if their archives had been scored together.

Rows are carried over as they are. A recording that several stores hold is taken once. Recordings
whose rows would be others by what all stores know together, or that lie in pieces in several
stores, are scored again from their transcripts; where those are not here, the rows stay as the
first store has them, and `store.json` says so (`as_scored`): a later `score` mends it.
"""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from mcptally.errors import StoreError, UsageError
from mcptally.pipeline import fingerprint, incremental
from mcptally.pipeline.engines import opened
from mcptally.pipeline.plan import limit_of
from mcptally.pipeline.run import Run
from mcptally.pipeline.scoring import Judging
from mcptally.process_memory import gc_paused
from mcptally.store import files as store_files
from mcptally.transcript.remote import was_url


@dataclasses.dataclass(frozen=True, slots=True)
class Merged:
    """What a merge made."""

    out: Path
    stores: int
    """Stores that were merged."""
    files: int
    """Files of the archive that the store has now."""
    rows: dict[str, int]
    """Rows of each table."""
    reused: int
    """Files whose rows were carried over."""
    twice: int
    """Recordings that several stores held."""
    as_scored: list[str]
    """Recordings that would be judged otherwise, or put together, if their files were here."""


def merge_stores(
    paths: Sequence[str | Path],
    *,
    out: str | Path,
    rules: str | Path | None = None,
    scenarios: str | Path | None = None,
) -> Merged:
    """Put several stores into one.

    Args:
        paths: stores, all made by this mcptally with the same rules and options. What several of
            them hold is taken from the first.
        out: the store that is made, a folder; one of `paths`, or another.
        rules: the rule file they were scored with, if any.
        scenarios: the scenarios file they were scored with, if any.

    Raises:
        UsageError: no store is given, `out` is a URL, or two stores know different files by one
            name.
        StoreError: one is no store, or was made by another mcptally or otherwise than the first.
    """
    folders = list(dict.fromkeys(Path(path) for path in paths))
    if not folders:
        raise UsageError("nothing to merge: name stores")
    if url := was_url(Path(out)):
        raise UsageError(f"{url}: stores are merged into a folder; copy it to the URL afterwards")
    for folder in folders:
        store_files.read_manifest(folder)  # before anything is made
    judging = Judging.of(
        rules=Path(rules) if rules else None, scenarios=Path(scenarios) if scenarios else None
    )
    target = Path(out)
    with contextlib.ExitStack() as held:
        for folder in folders:
            if folder.resolve() != target.resolve():
                held.enter_context(store_files.alone_in(folder))
        workers = held.enter_context(opened("local"))
        work = held.enter_context(store_files.working(target))
        manifests = [store_files.read_manifest(folder) for folder in folders]
        made = store_files.Made(
            judging.digest,
            bool(manifests[0].get("payloads")),
            fingerprint.code_digest(),
            forgotten=[row for manifest in manifests for row in manifest.get("forgotten", ())],
            by="merge",
        )
        for folder, manifest in zip(folders, manifests, strict=True):
            if why := fingerprint.reuse_blocker(folder, manifest, made):
                raise StoreError(
                    f"{folder}: cannot be merged: {why}; score its archive again, and give --rules "
                    "and --scenarios if the stores were scored with them"
                )
        _refuse_others(manifests)
        kept = incremental.Earlier(folders, manifests)
        kept.fixed = {
            name
            for name, source in kept.sources.items()
            if not fingerprint.is_same(Path(name), source)
        }
        twice = _once(kept)
        here = [Path(name) for name in kept.sources if name not in kept.fixed]
        run = Run(target, work, judging, kept, payloads=made.payloads, progress=lambda *_: None)
        with gc_paused():
            run.through(here, workers, limit=limit_of(workers.jobs))
        summary = run.publish(made)
    return Merged(
        target,
        len(folders),
        summary.files,
        summary.rows,
        summary.reused,
        twice,
        sorted(kept.as_scored | kept.apart),
    )


def _refuse_others(manifests: Sequence[Mapping[str, Any]]) -> None:
    """See that a name stands for the same file in all stores."""
    known: dict[str, str] = {}
    for manifest in manifests:
        for row in manifest["archive"]:
            if known.setdefault(row["file"], row["sha256"]) != row["sha256"]:
                raise UsageError(
                    f"{row['file']}: stands for different files in these stores; score the "
                    "archives together"
                )


def _once(kept: incremental.Earlier) -> int:
    """Take what several stores hold from the first of them; gives how many recordings that is.

    A recording whose files are not the same in all is scored again from all of them, or stays as
    the first store has it.
    """
    hashes = {name: source.sha256 for name, source in kept.sources.items()}
    homes = kept.homes.with_columns(
        sha256=pl.col("file").replace_strict(hashes, default=None, return_dtype=pl.String)
    )
    held = (
        homes.group_by("recording", "store")
        .agg(pl.col("sha256").unique().sort(), pl.col("file").unique())
        .sort("recording", "store")
        .filter(pl.len().over("recording") > 1)
    )
    later: dict[int, list[str]] = {}
    for (recording,), rows in held.group_by("recording", maintain_order=True):
        copies = rows.get_column("sha256").to_list()
        files = set(rows.explode("file").get_column("file"))
        if any(each != copies[0] for each in copies):
            if not files & kept.fixed:
                kept.drop(files)
                continue
            kept.apart.add(str(recording))
        for number in rows.get_column("store").to_list()[1:]:
            later.setdefault(number, []).append(str(recording))
    for number, recordings in later.items():
        kept.leave_out(number, recordings)
    lone = kept.lone.filter(pl.int_range(pl.len()).over("file") > 0)
    kept.left_files = pl.concat([kept.left_files, lone.select("store", "file")])
    _drop_copies(kept)
    return held.get_column("recording").n_unique()


def _drop_copies(kept: incremental.Earlier) -> None:
    """Forget of files of which nothing is taken: copies of what another store holds."""
    live = kept.files_of(kept.homes.get_column("recording").unique())
    lone = set(kept.lone.get_column("file"))
    for name in set(kept.homes.get_column("file")) - live - lone - kept.again:
        del kept.sources[name]
        kept.fixed.discard(name)
