"""Data of a server, a tool or a recording taken out of a store and out of its transcripts.

What is taken out is decided by the store; each transcript is written anew beside itself and put in
its place in one step; then the store is scored again from what is left, so that it is what a run
over the remaining archive makes. A `gap` in the transcript and a row in `store.json` say that
something was forgotten, never what.

Where something cannot be told apart from what is to be forgotten, it goes too: see `_of_tool`.
"""

import dataclasses
import datetime
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from mcptally import database, reuse, store
from mcptally.archive import Damage, discover, lines
from mcptally.check import is_held
from mcptally.engines import opened
from mcptally.errors import QueryError, StoreError, UnreadableError, UsageError, near
from mcptally.frame import EVENTS
from mcptally.ids import digest
from mcptally.pipeline import Run, patiently
from mcptally.plan import PARTITION
from mcptally.redact import written_like
from mcptally.schema import Calls, Messages, Recordings, Validations
from mcptally.scoring import Judging

WHY: Final = "forgotten on request"
"""The reason that a `gap` in the place of something forgotten gives."""

ALOUD: Final = ("stderr", "raw")
"""Events of a recording that no call can be told of."""

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
    done: bool = False
    """Whether it was done, or only told."""


@dataclasses.dataclass(slots=True)
class Target:
    """What is to be forgotten of transcripts."""

    whole: set[str] = dataclasses.field(default_factory=set)
    """Recordings."""
    members: dict[str, dict[int, set[int]]] = dataclasses.field(default_factory=dict)
    """Of other recordings, messages: `seq`, and of a batch the `index`."""
    aloud: dict[str, int] = dataclasses.field(default_factory=dict)
    """Recordings of which nothing is left from a `seq` on that no call can be told of."""
    tool: str | None = None
    """Whose definition is taken out of listings."""
    listing: set[str] = dataclasses.field(default_factory=set)
    """Recordings in which it may be listed."""

    @property
    def recordings(self) -> set[str]:
        """All that anything is taken out of."""
        return {*self.whole, *self.members, *self.aloud, *self.listing}


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
    manifest = store.read_manifest(folder)
    judging = Judging.of(
        rules=Path(rules) if rules else None, scenarios=Path(scenarios) if scenarios else None
    )
    made = store.Made(
        judging.digest,
        bool(manifest.get("payloads")),
        reuse.code(),
        forgotten=store.forgotten(folder),
    )
    with opened("local") as workers, store.working(folder) as work:
        kept = _kept(folder, made)
        target, calls = _target(folder, server=server, tool=tool, recording=recording)
        told = Forgotten(len(target.whole), calls)
        copies = _copies(kept, archive)
        _find(kept, target, told)
        for name in sorted({*told.files, *copies}):
            file = _File(Path(name), target, write=yes)
            told.events += file.events
            if name in copies and file.events:
                told.files.append(name)
        if not yes:
            return told
        about = {"server": server, "tool": tool, "recording": recording}
        made = dataclasses.replace(made, forgotten=[*made.forgotten, _trace(about, told)])
        kept.leave_out(0, target.whole)
        kept.fixed |= {name for name in kept.sources if not Path(name).is_file()}
        here = [Path(name) for name in kept.sources if name not in kept.fixed]
        run = Run(work, judging, kept, payloads=made.payloads, progress=lambda *_: None)
        with patiently():
            run.through(here, workers, limit=PARTITION)
        run.publish(folder, made)
        # Views hold nothing, but answers that were kept there do.
        (folder / database.FILE).unlink(missing_ok=True)
    told.done = True
    return told


def _kept(folder: Path, made: store.Made) -> reuse.Earlier:
    found = reuse.earlier(folder, made)
    if isinstance(found, reuse.Earlier):
        return found
    raise StoreError(
        f"{folder}: what stays in it cannot be told from it alone: {found}; score the archive "
        "again first, and give --rules and --scenarios if it was scored with them"
    )


def _trace(about: Mapping[str, str | None], told: Forgotten) -> dict[str, Any]:
    """What `store.json` says of it: that, when and how much; of names, digests."""
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **{kind: digest(name) for kind, name in about.items() if name is not None},
        "recordings": told.recordings,
        "calls": told.calls,
        "events": told.events,
    }


def _copies(kept: reuse.Earlier, archive: Iterable[str | Path]) -> set[str]:
    paths = list(archive)
    known = {Path(name).resolve() for name in kept.sources}
    return (
        {str(path) for path in discover(paths) if path.resolve() not in known} if paths else set()
    )


def _find(kept: reuse.Earlier, target: Target, told: Forgotten) -> None:
    """The transcripts of the store that hold some of it."""
    for name in sorted(kept.files_of(target.recordings)):
        path = Path(name)
        if not path.is_file():
            told.missing.append(name)
        elif not reuse.is_same(path, kept.sources[name]):
            raise UnreadableError(f"{name}: changed since it was scored; score the archive first")
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
    folder: Path, *, server: str | None, tool: str | None, recording: str | None
) -> tuple[Target, int]:
    """What the names stand for, and how many calls that is."""
    recordings = _read(folder, Recordings.name, "recording", "server")
    calls = _read(folder, Calls.name, *_OF_CALLS)
    for column, name in (("server", server), ("recording", recording)):
        if name is not None:
            _require(recordings, column, name)
            recordings = recordings.filter(pl.col(column) == name)
    calls = calls.join(recordings.select("recording"), on="recording", how="semi")
    if tool is None:
        return Target(whole=set(recordings.get_column("recording"))), calls.height
    return _of_tool(folder, tool, recordings.select("recording"), calls)


_OF_CALLS: Final = ("call_id", "recording", "seq", "session", "dir", "tool", "attempt_of")


def _read(folder: Path, table: str, *columns: str) -> pl.DataFrame:
    return pl.read_parquet(folder / table / "*.parquet", columns=list(columns))


def _require(frame: pl.DataFrame, column: str, name: str) -> None:
    names = [each for each in frame.get_column(column).unique() if each is not None]
    if name not in names:
        raise QueryError(f"no {column} of the store is called {name!r}{near(name, names)}")


def _of_tool(
    folder: Path, tool: str, recordings: pl.DataFrame, calls: pl.DataFrame
) -> tuple[Target, int]:
    """All that is about a tool in these recordings.

    Its calls with whatever belongs to them: replies, progress, cancellations, continuations, tasks,
    and validations of its arguments. Requests of the server, and what they are answered, while one
    of its calls was open. From the first of its calls in a recording on: stderr, frames that are no
    JSON, and messages that belong to no call, such as logs. Its definition in every listing.
    """
    listed = pl.concat(
        [pl.DataFrame(schema={"recording": pl.String, "tool": pl.String})]
        + [
            pl.read_parquet(path, columns=["recording", "tool"])
            for path in sorted((folder / store.KNOWN / "listed").glob("*.parquet"))
        ]
    ).join(recordings, on="recording", how="semi")
    _require(pl.concat([listed, calls.select("recording", "tool")]), "tool", tool)
    said = _read(folder, Validations.name, "call_id", "tool").filter(tool=tool)
    own = calls.filter(
        (pl.col("tool") == tool) | pl.col("call_id").is_in(said.get_column("call_id").implode())
    )
    own = calls.join(own.select("attempt_of").unique(), on="attempt_of", how="semi")
    messages = _read(
        folder, Messages.name, "recording", "seq", "index", "session", "dir", "method", "call_id"
    ).join(own.select("recording").unique(), on="recording", how="semi")
    spans = (
        messages.join(own.select("call_id"), on="call_id", how="semi")
        .group_by("call_id", "recording")
        .agg(first=pl.col("seq").min(), last=pl.col("seq").max())
    )
    asked_back = calls.filter(pl.col("dir") == "s2c").join(spans, on="recording", suffix="_of")
    # A call without a reply may be open to the end.
    last = pl.when(pl.col("first") == pl.col("last")).then(None).otherwise("last")
    inside = asked_back.filter(
        pl.col("seq") > pl.col("first"), (pl.col("seq") < last).fill_null(value=True)
    )
    every = pl.concat([own.select("call_id"), inside.select("call_id")]).unique()
    gone = messages.join(every, on="call_id", how="semi").select("recording", "seq", "index")
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


# --- transcripts ---------------------------------------------------------------------------------

_Fields = dict[str, msgspec.Raw]
_FIELDS: Final = msgspec.json.Decoder(_Fields)


class _Envelope(msgspec.Struct):
    event: str
    recording: str
    seq: int = 0
    ts_ns: int = 0


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_encode: Final = msgspec.json.encode


class _File:
    """One transcript without what is forgotten; written in its place if `write`."""

    def __init__(self, path: Path, target: Target, *, write: bool) -> None:
        self.target = target
        self.events = 0
        """Lines that were dropped, replaced or shortened."""
        self.first: dict[str, _Envelope] = {}
        self.lost: Counter[str] = Counter()
        if not any(self._is_about(line) for line in _every(path)):
            return
        if write:
            self._rewrite(path)
        else:
            self.events = sum(1 for line in _every(path) if self._line(line) is not line)

    def _is_about(self, line: bytes) -> bool:
        try:
            return _ENVELOPE.decode(line).recording in self.target.recordings
        except (msgspec.DecodeError, RecursionError):
            return False

    def _rewrite(self, path: Path) -> None:
        if is_held(path):
            raise UnreadableError(f"{path}: is being written; stop its recorder first")
        part = path.with_name(f"{path.name}.part")
        part.unlink(missing_ok=True)
        try:
            with written_like(path, part) as write:
                for line in _every(path):
                    left = self._line(line)
                    self.events += left is not line
                    write(left)
                for name, first in sorted(self.first.items()):
                    stand_in = f"forgotten-{digest(name)}"
                    write(_gap(stand_in, first.seq, first.ts_ns, self.lost[name]))
            if self.events:
                part.chmod(path.stat().st_mode)
                with part.open("rb") as file:
                    os.fsync(file.fileno())
                part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def _line(self, line: bytes) -> bytes:
        """A line as it stays: as it was, shortened, as a gap, or not at all."""
        try:
            head = _ENVELOPE.decode(line)
        except (msgspec.DecodeError, RecursionError):
            head = None
        if head is None or head.event not in EVENTS:
            return b""  # nobody can tell what it is about: it may be the rest of a torn one
        if head.recording in self.target.whole:
            self.first.setdefault(head.recording, head)
            self.lost[head.recording] += 1
            return b""
        return self._left(head, line)

    def _left(self, head: _Envelope, line: bytes) -> bytes:
        since = self.target.aloud.get(head.recording)
        if head.event in ALOUD and since is not None and head.seq > since:
            return _gap(head.recording, head.seq, head.ts_ns, 1)
        indices = self.target.members.get(head.recording, {}).get(head.seq)
        if head.event == "raw" and (indices is not None or self._may_list(head, line)):
            return _gap(head.recording, head.seq, head.ts_ns, 1)
        if head.event != "message" or head.recording not in self.target.recordings:
            return line
        fields = _FIELDS.decode(line)
        message = bytes(fields.get("msg", msgspec.Raw(b"null")))
        members = [message] if message[:1] != b"[" else _array(message)
        kept = [each for n, each in enumerate(members) if n not in (indices or ())]
        if not kept and members:
            return _gap(head.recording, head.seq, head.ts_ns, 1)
        if head.recording in self.target.listing:
            kept = [_unlisted(each, self.target.tool) for each in kept]
        if kept == members:
            return line
        text = kept[0] if message[:1] != b"[" else b"[" + b",".join(kept) + b"]"
        fields |= {"msg": msgspec.Raw(text), "forgotten": msgspec.Raw(b"true")}
        return _encode(fields) + b"\n"

    def _may_list(self, head: _Envelope, line: bytes) -> bool:
        """Whether a frame that nobody took apart may hold the tool's definition."""
        tool = self.target.tool
        return head.recording in self.target.listing and tool is not None and tool.encode() in line


def _every(path: Path) -> Iterator[bytes]:
    """Every line of a transcript that can be read, with its newline."""
    for run in lines(path):
        if isinstance(run, Damage):
            continue
        begin, data = 0, run.data
        while begin < len(data):
            end = data.find(b"\n", begin) + 1 or len(data)
            yield data[begin:end]
            begin = end


def _array(text: bytes) -> list[bytes]:
    return [bytes(each) for each in msgspec.json.decode(text, type=list[msgspec.Raw])]


def _unlisted(message: bytes, tool: str | None) -> bytes:
    """A reply to tools/list without the definition of a tool; other messages as they are."""
    if b'"tools"' not in message:
        return message
    try:
        fields = _FIELDS.decode(message)
        result = _FIELDS.decode(fields["result"])
        tools = msgspec.json.decode(result["tools"], type=list[msgspec.Raw])
        kept = [each for each in tools if _name(each) != tool]
    except (msgspec.DecodeError, KeyError, RecursionError):
        return message
    if len(kept) == len(tools):
        return message
    result["tools"] = msgspec.Raw(_encode(kept))
    fields["result"] = msgspec.Raw(_encode(result))
    return _encode(fields)


def _name(definition: msgspec.Raw) -> str | None:
    try:
        return msgspec.json.decode(_FIELDS.decode(definition)["name"], type=str)
    except (msgspec.DecodeError, KeyError):
        return None


def _gap(recording: str, seq: int, ts_ns: int, lost: int) -> bytes:
    event = {"v": 1, "event": "gap", "recording": recording, "seq": seq, "ts_ns": ts_ns}
    return _encode(event | {"lost": lost, "why": WHY}) + b"\n"
