"""Removes the data of a server, a tool or a recording from a store and its transcripts.

The store says which messages that are. Each transcript is rewritten without them
(`erase_transcripts`), and then the store is scored again from the remaining archive. A `gap` event
in the transcript and an entry in `store.json` say that something was removed, never what.

Data that cannot be separated from what is removed is removed too: see `forget_target`.
"""

import dataclasses
import datetime
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from mcptally.errors import StoreError, UnreadableError, UsageError, as_argument
from mcptally.maintenance.erase_transcripts import EraseTarget, TranscriptEraser
from mcptally.maintenance.forget_target import files_with_duplicates, find_target
from mcptally.pipeline import fingerprint, incremental
from mcptally.pipeline.engines import open_engine
from mcptally.pipeline.gathering import Settings
from mcptally.pipeline.incremental import EarlierStores
from mcptally.pipeline.plan import default_partition_bytes
from mcptally.pipeline.run import build, publish
from mcptally.pipeline.scoring import ScoringRules
from mcptally.pipeline.selection import Selection
from mcptally.store.manifest import MANIFEST, live_files, read_manifest, replace_manifest
from mcptally.store.source_files import digest_of
from mcptally.store.work_folder import Provenance, remove_unlisted, working
from mcptally.tables.ids import digest
from mcptally.transcript.discover import discover


@dataclasses.dataclass(slots=True)
class Forgotten:
    """The result of `forget`: the data that it removed, or would remove."""

    recordings: int = 0
    """Recordings that are removed as a whole."""
    calls: int = 0
    events: int = 0
    """Lines of transcripts that are removed, replaced or shortened."""
    files: list[str] = dataclasses.field(default_factory=list)
    """Transcripts that are rewritten."""
    missing: list[str] = dataclasses.field(default_factory=list)
    """Transcripts with data to be removed that are not available, and so still contain it."""
    taken_out: list[str] = dataclasses.field(default_factory=list)
    """Places and reasons of lines that are removed because they cannot be read."""
    done: bool = False
    """Whether the data was removed; False in a dry run."""


def forget(
    path: str | Path,
    *,
    archive: Iterable[str | Path] = (),
    server: str | None = None,
    tool: str | None = None,
    recording: str | None = None,
    rules: str | Path | None = None,
    scenarios: str | Path | None = None,
    tokenizer: str | Path | None = None,
    yes: bool = False,
) -> Forgotten:
    """Remove data from a store and from its transcripts.

    Args:
        path: the store.
        archive: further transcripts, or folders with copies of the store's transcripts.
        server: remove all recordings of this server; with `tool`, only that tool of it.
        tool: remove this tool: calls, definitions, and what cannot be separated from them.
        recording: remove this recording; with `tool`, only that tool in it.
        rules: the rule file that the store was scored with, if any.
        scenarios: the scenarios file that it was scored with, if any.
        tokenizer: the tokenizer that it was scored with, if any.
        yes: remove the data; otherwise only report what would be removed.

    Raises:
        UsageError: nothing is named.
        QueryError: no such server, tool or recording is in the store.
        StoreError: there is no store, or it was scored by another version of mcptally or with other
            rules.
        UnreadableError: a transcript changed since it was scored, is being written, or is not
            available although its recordings must be scored again without a tool.
    """
    if server is None and tool is None and recording is None:
        raise UsageError("nothing to forget: name a --server, a --tool or a --recording")
    folder = Path(path)
    read_manifest(folder)  # check before a work folder is created
    judging = ScoringRules.of(rules=rules, scenarios=scenarios, tokenizer=tokenizer)
    about = {"server": server, "tool": tool, "recording": recording}
    with open_engine("local") as engine, working(folder) as work:
        manifest = read_manifest(folder)
        made = Provenance(
            judging.digest,
            bool(manifest.get("payloads")),
            fingerprint.code_digest(),
            forgotten=manifest.get("forgotten", ()),
            by=manifest.get("made_by", "score"),
            selection=manifest.get("selection"),
            tokenizer=judging.tokenizer_name,
            own_rules=judging.rules.changes,
        )
        journal = _Journal(folder, manifest, about)
        earlier = _earlier(folder, made)
        files = live_files(folder, manifest)
        target, calls = find_target(files, earlier, server=server, tool=tool, recording=recording)
        report = Forgotten(len(target.whole), calls)
        copies = _copies(earlier, archive)
        repeated = files_with_duplicates(files, target.recordings)
        _find_transcripts(earlier, target, repeated, report, journal)
        for name in sorted({*report.files, *copies}):
            events = journal.changed_lines(name)
            if events is None:
                note = functools.partial(journal.note, name)
                file = TranscriptEraser(Path(name), target, write=yes, note=note)
                events = file.events
                report.taken_out += file.taken_out
            report.events += events
            if name in copies and events:
                report.files.append(name)
        if not yes:
            return report
        made = msgspec.structs.replace(made, forgotten=[*made.forgotten, _trace(about, report)])
        gone = {name for name in earlier.sources if not Path(name).is_file()}
        earlier = msgspec.structs.replace(earlier, unavailable=frozenset(gone))
        earlier = earlier.excluding(0, target.whole)
        left = [Path(name) for name in earlier.sources if name not in gone]
        settings = Settings(
            folder,
            work,
            judging,
            made.payloads,
            default_partition_bytes(engine.jobs),
            Selection.from_manifest(manifest),
        )
        publish(settings, build(settings, left, engine, earlier.without_changed(left)), made)
        if remaining := remove_unlisted(folder):
            raise StoreError(
                f"{remaining[0]}: holds what was forgotten, is no longer part of the store, and "
                "could not be removed; remove it"
            )
    report.done = True
    return report


def _earlier(folder: Path, made: Provenance) -> EarlierStores:
    """The rows of the store, for reuse.

    Raises:
        StoreError: they cannot be reused, or the manifest does not name one of their files.
    """
    found = incremental.open_earlier(folder, made)
    if isinstance(found, EarlierStores):
        files = found.places.all().select("file").unique().collect().to_series()
        if unknown := sorted({*files.drop_nulls()} - found.sources.keys()):
            raise StoreError(
                f"{folder / MANIFEST}: does not name {unknown[0]}, and the store has "
                "rows of it; rebuild the store with: "
                f"mcptally score ARCHIVE -o {as_argument(folder)}"
            )
        return found
    raise StoreError(
        f"{folder}: its rows cannot be reused: {found}; score the archive again first, and give "
        "--rules, --scenarios and --tokenizer if it was scored with them"
    )


def _trace(about: Mapping[str, str | None], report: Forgotten) -> dict[str, Any]:
    """The entry in `store.json`: when, and how much. Digests of names could be guessed."""
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "named": [kind for kind, name in about.items() if name is not None],
        "recordings": report.recordings,
        "calls": report.calls,
        "events": report.events,
    }


def _copies(earlier: EarlierStores, archive: Iterable[str | Path]) -> set[str]:
    """The transcripts in `archive` that the store was not made from."""
    paths = list(archive)
    known = {Path(name).resolve() for name in earlier.sources}
    return (
        {str(path) for path in discover(paths) if path.resolve() not in known} if paths else set()
    )


class _Journal:
    """The transcripts that an unfinished `forget` has replaced, kept in the store's manifest.

    After a kill between two transcripts, `forget` is run again. The transcripts that were replaced
    differ from those that were scored, also in the positions of messages in batches.
    """

    def __init__(
        self, folder: Path, manifest: dict[str, Any], about: Mapping[str, str | None]
    ) -> None:
        self.folder, self.manifest = folder, manifest
        self.request = digest(repr(sorted(about.items())))
        before = manifest.get("erasing", {})
        self.unfinished: dict[str, Any] = before.get("files", {})
        self.files = dict(self.unfinished) if before.get("request") == self.request else {}

    def changed_lines(self, name: str) -> int | None:
        """Number of lines that this request changed in a transcript; None if it is not replaced."""
        known = self.files.get(name)
        if known is None or digest_of(Path(name)) != known["sha256"]:
            return None
        return int(known["events"])

    def note(self, name: str, sha256: str, events: int) -> None:
        """Write into the manifest that a transcript will be replaced by one with this digest."""
        self.files[name] = {"sha256": sha256, "events": events}
        erasing = {"request": self.request, "files": self.files}
        replace_manifest(self.folder, self.manifest | {"erasing": erasing})


def _find_transcripts(
    earlier: EarlierStores,
    target: EraseTarget,
    repeated: set[str],
    report: Forgotten,
    journal: _Journal,
) -> None:
    """Add the transcripts with data of the target to `report.files` or `report.missing`.

    Args:
        earlier: the rows of the store.
        target: what is to be removed.
        repeated: transcripts with duplicates of its events, which have no rows in the store.
        report: the report.
        journal: what an interrupted `forget` has done.

    Raises:
        UnreadableError: one changed since it was scored, or must be scored again and is missing.
    """
    for name in sorted(earlier.files_of(target.recordings) | repeated & earlier.sources.keys()):
        path = Path(name)
        if not path.is_file():
            report.missing.append(name)
        elif (
            not fingerprint.is_same(path, earlier.sources[name])
            and journal.changed_lines(name) is None
        ):
            first = "score the archive first"
            if name in journal.unfinished:
                first = f"run the interrupted forget again, or {first}"
            raise UnreadableError(f"{name}: changed since it was scored; {first}")
        else:
            report.files.append(name)
    partly = earlier.files_of(target.recordings - target.whole)
    if lost := sorted(partly & {*report.missing}):
        raise UnreadableError(
            f"{lost[0]}: is not here, and to forget a tool its recordings are scored again; run "
            "this where the archive is, or forget its recordings"
        )
