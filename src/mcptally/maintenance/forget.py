"""Data of a server, a tool or a recording taken out of a store and out of its transcripts.

What is taken out is decided by the store; each transcript is written anew without it (`erasing`);
then the store is scored again from what is left, so that it is what a run
over the remaining archive makes. A `gap` in the transcript and a row in `store.json` say that
something was forgotten, never what.

Where something cannot be told apart from what is to be forgotten, it goes too: see `_of_tool`.
"""

import dataclasses
import datetime
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from mcptally.errors import QueryError, StoreError, UnreadableError, UsageError, near
from mcptally.maintenance.erase_transcripts import Erased, Target, naming
from mcptally.pipeline import fingerprint, incremental
from mcptally.pipeline.engines import opened
from mcptally.pipeline.plan import limit_of
from mcptally.pipeline.run import Run
from mcptally.pipeline.scoring import Judging
from mcptally.process_memory import gc_paused
from mcptally.store import files as store_files
from mcptally.tables.calls import Calls
from mcptally.tables.ids import digest
from mcptally.tables.messages import Messages
from mcptally.tables.recordings import Recordings
from mcptally.tables.validations import Validations
from mcptally.transcript.discover import discover

HARMLESS: Final = (
    *("notifications/initialized", "notifications/tools/list_changed"),
    *("notifications/prompts/list_changed", "notifications/resources/list_changed"),
    "notifications/roots/list_changed",
)
"""Messages that no call can be told of, and that say nothing either."""


@dataclasses.dataclass(slots=True)
class Forgotten:
    """What was forgotten, or would be."""

    recordings: int = 0
    """Recordings that were forgotten whole."""
    calls: int = 0
    events: int = 0
    """Lines of transcripts."""
    files: list[str] = dataclasses.field(default_factory=list)
    """Transcripts that were written anew."""
    missing: list[str] = dataclasses.field(default_factory=list)
    """Transcripts that hold some of it and are not here: it is in them still."""
    taken_out: list[str] = dataclasses.field(default_factory=list)
    """Where transcripts lost lines that nobody can read, and why: such a line may be about it."""
    done: bool = False
    """Whether it was done, or only told."""


def forget(
    path: str | Path,
    *,
    archive: Iterable[str | Path] = (),
    server: str | None = None,
    tool: str | None = None,
    recording: str | None = None,
    rules: str | Path | None = None,
    scenarios: str | Path | None = None,
    yes: bool = False,
) -> Forgotten:
    """Remove data from a store and from the transcripts it was made of.

    Args:
        path: the store.
        archive: further transcripts, copies of those that the store was made of, or folders.
        server: forget all recordings of this server; with `tool`, that tool of it.
        tool: forget this tool: calls, definitions, and what cannot be told apart from them.
        recording: forget this recording; with `tool`, that tool in it.
        rules: the rule file that the store was scored with, if any.
        scenarios: the scenarios file that it was scored with, if any.
        yes: do it; else it is only told what would be done.

    Raises:
        UsageError: nothing is named.
        QueryError: no such server, tool or recording is in the store.
        StoreError: there is no store, or one that another mcptally or other rules made.
        UnreadableError: a transcript changed since it was scored, is being written, or is not here
            and a tool cannot be taken out of what is known of it.
    """
    if server is None and tool is None and recording is None:
        raise UsageError("nothing to forget: name a --server, a --tool or a --recording")
    folder = Path(path)
    store_files.read_manifest(folder)  # before a folder that is none is touched
    judging = Judging.of(
        rules=Path(rules) if rules else None, scenarios=Path(scenarios) if scenarios else None
    )
    about = {"server": server, "tool": tool, "recording": recording}
    with opened("local") as workers, store_files.working(folder) as work:
        manifest = store_files.read_manifest(folder)
        made = store_files.Made(
            judging.digest,
            bool(manifest.get("payloads")),
            fingerprint.code_digest(),
            forgotten=manifest.get("forgotten", ()),
            by=manifest.get("made_by", "score"),
        )
        erased = _Journal(folder, manifest, about)
        kept = _kept(folder, made)
        files = store_files.live(folder, manifest)
        target, calls = _target(files, kept, server=server, tool=tool, recording=recording)
        told = Forgotten(len(target.whole), calls)
        copies = _copies(kept, archive)
        _find(kept, target, told, erased)
        for name in sorted({*told.files, *copies}):
            events = erased.already(name)
            if events is None:
                note = functools.partial(erased.note, name)
                file = Erased(Path(name), target, write=yes, note=note)
                events = file.events
                told.taken_out += file.taken_out
            told.events += events
            if name in copies and events:
                told.files.append(name)
        if not yes:
            return told
        made = dataclasses.replace(made, forgotten=[*made.forgotten, _trace(about, told)])
        kept.leave_out(0, target.whole)
        kept.fixed |= {name for name in kept.sources if not Path(name).is_file()}
        here = [Path(name) for name in kept.sources if name not in kept.fixed]
        run = Run(folder, work, judging, kept, payloads=made.payloads, progress=lambda *_: None)
        with gc_paused():
            run.through(here, workers, limit=limit_of(workers.jobs))
        run.publish(made)
        if left := store_files.sweep(folder):
            raise StoreError(
                f"{left[0]}: holds what was forgotten, is part of no store any more, and cannot be "
                "removed; remove it"
            )
    told.done = True
    return told


def _kept(folder: Path, made: store_files.Made) -> incremental.Earlier:
    found = incremental.earlier(folder, made)
    if isinstance(found, incremental.Earlier):
        if unknown := sorted({*found.homes["file"].drop_nulls()} - found.sources.keys()):
            raise StoreError(
                f"{folder / store_files.MANIFEST}: does not name {unknown[0]}, and the store has "
                f"rows of it; rebuild the store with: mcptally score ARCHIVE -o {folder}"
            )
        return found
    raise StoreError(
        f"{folder}: what stays in it cannot be told from it alone: {found}; score the archive "
        "again first, and give --rules and --scenarios if it was scored with them"
    )


def _trace(about: Mapping[str, str | None], told: Forgotten) -> dict[str, Any]:
    """What `store.json` says of it: that, when and how much. A digest of a name can be guessed."""
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "named": [kind for kind, name in about.items() if name is not None],
        "recordings": told.recordings,
        "calls": told.calls,
        "events": told.events,
    }


def _copies(kept: incremental.Earlier, archive: Iterable[str | Path]) -> set[str]:
    paths = list(archive)
    known = {Path(name).resolve() for name in kept.sources}
    return (
        {str(path) for path in discover(paths) if path.resolve() not in known} if paths else set()
    )


class _Journal:
    """Which transcripts an unfinished `forget` has written anew already, in the store's manifest.

    A `forget` that is killed between two transcripts is run again; those that it had done are not
    as they were scored then, and places of messages in a batch are others in them.
    """

    def __init__(
        self, folder: Path, manifest: dict[str, Any], about: Mapping[str, str | None]
    ) -> None:
        self.folder, self.manifest = folder, manifest
        self.request = digest(repr(sorted(about.items())))
        before = manifest.get("erasing", {})
        self.unfinished: dict[str, Any] = before.get("files", {})
        self.files = dict(self.unfinished) if before.get("request") == self.request else {}

    def already(self, name: str) -> int | None:
        """Lines that this request has taken out of a transcript, which is as it left it."""
        known = self.files.get(name)
        if known is None or store_files.digest_of(Path(name)) != known["sha256"]:
            return None
        return int(known["events"])

    def note(self, name: str, sha256: str, events: int) -> None:
        """Note that a transcript is about to be replaced by one of this digest."""
        self.files[name] = {"sha256": sha256, "events": events}
        erasing = {"request": self.request, "files": self.files}
        store_files.replace_manifest(self.folder, self.manifest | {"erasing": erasing})


def _find(kept: incremental.Earlier, target: Target, told: Forgotten, erased: _Journal) -> None:
    """The transcripts of the store that hold some of it."""
    for name in sorted(kept.files_of(target.recordings)):
        path = Path(name)
        if not path.is_file():
            told.missing.append(name)
        elif not fingerprint.is_same(path, kept.sources[name]) and erased.already(name) is None:
            first = "score the archive first"
            if name in erased.unfinished:
                first = f"run the forget that was interrupted again, or {first}"
            raise UnreadableError(f"{name}: changed since it was scored; {first}")
        else:
            told.files.append(name)
    partly = kept.files_of(target.recordings - target.whole)
    if lost := sorted(partly & {*told.missing}):
        raise UnreadableError(
            f"{lost[0]}: is not here, and a tool is forgotten by reading its recordings again; run "
            "this where the archive is, or forget its recordings"
        )


# --- what ----------------------------------------------------------------------------------------


def _target(
    files: store_files.Files,
    kept: incremental.Earlier,
    *,
    server: str | None,
    tool: str | None,
    recording: str | None,
) -> tuple[Target, int]:
    """What the names stand for, and how many calls that is."""
    recordings = _read(files, Recordings.name, "recording", "server")
    calls = _read(files, Calls.name, *_OF_CALLS)
    for column, name in (("server", server), ("recording", recording)):
        if name is not None:
            _require(recordings, column, name)
            recordings = recordings.filter(pl.col(column) == name)
    calls = calls.join(recordings.select("recording"), on="recording", how="semi")
    if tool is None:
        return Target(whole=set(recordings.get_column("recording"))), calls.height
    return _of_tool(files, kept, tool, recordings.select("recording"), calls)


_OF_CALLS: Final = (
    *("call_id", "recording", "seq", "session", "dir", "method", "tool", "attempt_of"),
)


def _read(files: store_files.Files, table: str, *columns: str) -> pl.DataFrame:
    return pl.read_parquet(files[table], columns=list(columns), glob=False)


def _require(frame: pl.DataFrame, column: str, name: str) -> None:
    names = [each for each in frame.get_column(column).unique() if each is not None]
    if name not in names:
        raise QueryError(f"no {column} of the store is called {name!r}{near(name, names)}")


def _of_tool(
    files: store_files.Files,
    kept: incremental.Earlier,
    tool: str,
    recordings: pl.DataFrame,
    calls: pl.DataFrame,
) -> tuple[Target, int]:
    """All that is about a tool in these recordings.

    Its calls with whatever belongs to them: replies, progress, cancellations, continuations, tasks,
    and validations of its arguments. Requests of the server, and what they are answered, while one
    of its calls was open. From the first of its calls in a recording on: stderr, frames that are no
    JSON, and messages that belong to no call, such as logs. Its definition in every listing.
    Completions that name it, and in its recordings whatever names it and belongs to no call.
    """
    listed = pl.concat(
        [pl.DataFrame(schema={"recording": pl.String, "tool": pl.String})]
        + [
            pl.read_parquet(path, columns=["recording", "tool"], glob=False)
            for path in files.get(f"{store_files.KNOWN}/listed", ())
        ]
    ).join(recordings, on="recording", how="semi")
    _require(pl.concat([listed, calls.select("recording", "tool")]), "tool", tool)
    said = _read(files, Validations.name, "call_id", "tool").filter(tool=tool)
    own = calls.filter(
        (pl.col("tool") == tool) | pl.col("call_id").is_in(said.get_column("call_id").implode())
    )
    own = calls.join(own.select("attempt_of").unique(), on="attempt_of", how="semi")
    every_message = _read(files, Messages.name, *_OF_MESSAGES)
    messages = every_message.join(own.select("recording").unique(), on="recording", how="semi")
    spans = (
        messages.join(own.select("call_id"), on="call_id", how="semi")
        .group_by("call_id", "recording")
        .agg(first=pl.col("seq").min(), last=pl.col("seq").max())
    )
    # How far the calls reach that were asked until then; one without a reply, to the end.
    reach = pl.when(pl.col("last") > pl.col("first")).then("last").otherwise(2**63 - 1)
    reached = spans.sort("first").select(
        "recording", "first", reach=reach.cum_max().over("recording")
    )
    asked_back = calls.filter(pl.col("dir") == "s2c").sort("seq")
    inside = asked_back.join_asof(
        reached,
        left_on="seq",
        right_on="first",
        by="recording",
        allow_exact_matches=False,
        check_sortedness=False,
    ).filter(pl.col("seq") < pl.col("reach"))
    completions = _completions(
        kept,
        tool,
        every_message.join(
            calls.filter(
                pl.col("method") == "completion/complete",
                pl.col("recording").is_in(
                    pl.concat([listed.filter(tool=tool)["recording"], own["recording"]]).implode()
                ),
            ),
            on="call_id",
            how="semi",
        ),
    )
    every = pl.concat([own.select("call_id"), inside.select("call_id"), completions]).unique()
    gone = every_message.join(every, on="call_id", how="semi").select("recording", "seq", "index")
    begins = dict(spans.group_by("recording").agg(pl.col("first").min()).iter_rows())
    stray = pl.col("call_id").is_null() & ~pl.col("method").is_in(HARMLESS).fill_null(value=False)
    since = pl.col("recording").replace_strict(begins, default=None, return_dtype=pl.Int64)
    strays = messages.filter(stray, pl.col("seq") > since)
    target = Target(
        aloud=begins,
        tool=tool,
        listing=set(listed.filter(tool=tool).get_column("recording")) | set(begins),
    )
    for name, seq, index in pl.concat([gone, strays.select(gone.columns)]).iter_rows():
        target.members.setdefault(name, {}).setdefault(seq, set()).add(index)
    return target, own.height


_OF_MESSAGES: Final = ("recording", "seq", "index", "session", "dir", "method", "call_id")


def _completions(kept: incremental.Earlier, tool: str, messages: pl.DataFrame) -> pl.DataFrame:
    """The calls of these messages that name a tool, in what was asked or answered."""
    places = set(messages.select("recording", "seq").iter_rows())
    files = kept.files_of(messages.get_column("recording").unique())
    found = [
        place
        for path in sorted(map(Path, files))
        if places and path.is_file()
        for place in naming(path, tool, places)
    ]
    schema = {name: messages.schema[name] for name in ("recording", "seq", "index")}
    named = pl.DataFrame(found, schema=schema, orient="row")
    return messages.join(named, on=["recording", "seq", "index"], how="semi").select("call_id")
