"""Decodes transcript files into tables. No other stage parses whole transcript lines.

files → Events (messages, their parameters and replies, HTTP events, …, findings)

One native call decodes a run of lines into typed structs, whose payloads stay raw bytes; other
native calls transpose the structs to columns. A line that does not match the types is decoded
separately, field by field, so a bad line does not affect others. Every line becomes a row or a
finding. docs/design/archives.md explains why no columnar JSON reader is used.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Raw

from mcptally.messages import event_tables
from mcptally.messages.batches import message_from_head, split_batches
from mcptally.messages.content_blocks import result_columns
from mcptally.messages.decode_lines import LineNumbers, decode_run
from mcptally.messages.duplicate_members import repeated_members, unexplained_sizes
from mcptally.messages.event_spool import EventSpool, Slicing
from mcptally.messages.event_tables import DuplicateMembers, Event, RequestParams
from mcptally.messages.long_results import REFERENCE, LongResults
from mcptally.messages.memory_budget import MemoryBudget
from mcptally.messages.struct_columns import (
    frame_of,
    json_texts,
    lengths,
    mask_at,
    scalar_columns,
    transpose,
)
from mcptally.process_memory import gc_paused
from mcptally.tables.arrow import indices, series_from_numpy
from mcptally.tables.declaration import StageTable
from mcptally.tables.findings import Finding, Severity, findings_frame
from mcptally.tables.mapped_tables import MappedTables
from mcptally.transcript.events import (
    ABSENT,
    ERROR_DECODER,
    FRAME_OF_EVENT,
    PARAMS_DECODER,
    AnyEvent,
    Error,
    Headers,
    HttpEvent,
    MessageEvent,
    Params,
    RawFrame,
    RequestMeta,
    ResultMeta,
)
from mcptally.transcript.files import (
    Damage,
    DecompressionBudget,
    Digests,
    LineRun,
    Span,
    read_lines,
)
from mcptally.transcript.parse import MAX_NOISE_LINES, NOISE_MESSAGE
from mcptally.transcript.unread import ReadTally
from mcptally.wire.nesting import with_raised_recursion_limit

BATCH: Final = 32 << 20
"""Number of bytes of lines that are converted to columns at a time. Larger batches would need more
memory, and many small batches would take longer."""

BATCH_EVENTS: Final = 16_384
"""Number of events that are converted at a time. The structs of more small events would not fit
into the processor's cache."""


class Events(msgspec.Struct, frozen=True):
    """The events in a set of transcript files, as tables; `event_tables` declares the tables."""

    messages: pl.DataFrame
    """The `DecodedMessages` table."""
    asks: pl.DataFrame
    """The `RequestParams` table."""
    replies: pl.DataFrame
    """The `Replies` table."""
    raws: pl.DataFrame
    """The `RawFrames` table."""
    http: pl.DataFrame
    """The `HttpEvents` table."""
    opens: pl.DataFrame
    """The `Opens` table."""
    closes: pl.DataFrame
    """The `Closes` table."""
    gaps: pl.DataFrame
    """The `Gaps` table."""
    stderr: pl.DataFrame
    """The `StderrEvents` table."""
    findings: pl.DataFrame
    """The `Findings` table."""
    duplicate_members: pl.DataFrame
    """The `DuplicateMembers` table."""
    mapped: MappedTables
    """Takes further tables of the same events, if they are a large recording."""


_TABLES: Final[dict[str, type[StageTable]]] = {
    "messages": event_tables.DecodedMessages,
    "asks": event_tables.RequestParams,
    "replies": event_tables.Replies,
    "raws": event_tables.RawFrames,
    "http": event_tables.HttpEvents,
    "opens": event_tables.Opens,
    "closes": event_tables.Closes,
    "gaps": event_tables.Gaps,
    "stderr": event_tables.StderrEvents,
}
"""Maps fields of `Events` to table classes, for the tables that are built batch by batch."""


class Slices(msgspec.Struct, frozen=True):
    """The events in a set of files; a large set is divided into slices by recording."""

    several: bool
    """Whether there is more than one slice."""
    events: Iterator[Events]
    """Yields the events of each slice. If there are several slices, they are read from temporary
    files."""
    digests: Digests
    """Digests of the files that were read completely."""
    tallies: list[ReadTally]
    """For each file, how much of it was read, and how much could not be read."""


@with_raised_recursion_limit
def decode(
    files: Sequence[Path], names: Sequence[str] | None = None, *, memory: int | None = None
) -> Events:
    """Decode all events in `files`, in order; unreadable parts become findings.

    Args:
        files: files that share recordings, or a single file.
        names: names for the files in findings; None means their paths.
        memory: maximum memory in bytes; lines that do not fit are not read, and a finding reports
            them. None means the free memory. For several files, free memory is checked only if they
            are larger than `memory_budget.UNCHECKED_BYTES`.

    Raises:
        McptallyError: a file behind a URL cannot be reached.
    """
    return next(_collected(files, names, memory, None).slices().events)


@with_raised_recursion_limit
def decode_slices(
    files: Sequence[Path],
    names: Sequence[str],
    slicing: Slicing | None,
    span: Span | None = None,
) -> Slices:
    """Decode all events in `files`, like `decode`, but in slices if there are many.

    A recording is never split between slices. The first slice contains the findings about files.

    Args:
        files: files that share recordings, or a single file.
        names: names for the files in findings.
        slicing: when to slice and where to store the slices; None means a single slice.
        span: the part of a single file to read; None means all of it.

    Raises:
        McptallyError: a file behind a URL cannot be reached.
    """
    return _collected(files, names, None, slicing, span).slices()


def _collected(
    files: Sequence[Path],
    names: Sequence[str] | None,
    memory: int | None,
    slicing: Slicing | None,
    span: Span | None = None,
) -> "_Collector":
    collect = _Collector(
        names or [str(path) for path in files], memory, slicing, alone=len(files) == 1
    )
    with gc_paused():
        for number, path in enumerate(files):
            collect.file(number, path, span)
        collect.batch()
    return collect


class _Collector:
    """Builds the tables of events, batch by batch."""

    def __init__(
        self, names: Sequence[str], memory: int | None, slicing: Slicing | None, *, alone: bool
    ) -> None:
        self.names = names
        self.slicing = slicing
        self.budget = MemoryBudget(memory, alone=alone, chunk=slicing.chunk if slicing else None)
        self.spool: EventSpool | None = None
        self.mapped = slicing.mapped if slicing else MappedTables(Path())
        self.frames: dict[str, list[pl.DataFrame]] = {}
        """Maps table names to tables that are converted in batches."""
        self.chunks: list[dict[str, pl.DataFrame]] = []
        """The tables of earlier chunks, in files, if most events belong to one recording."""
        self.rows = 0
        self.findings: list[Finding] = []
        self.waiting: list[AnyEvent] = []
        self.places: list[tuple[npt.NDArray[np.uint32], LineNumbers]] = []
        """For the pending events, in batches: the index of each event's file, and its line number.
        """
        self.runs: list[tuple[int, LineRun]] = []
        """The runs that contain the lines of the pending events, each with the index of its file.
        The lines stay in memory, because the payloads refer to them."""
        self.bytes = 0
        self.room = DecompressionBudget()
        self.digests: Digests = {}
        self.tallies: list[ReadTally] = []
        self.rereads_left = MAX_REREAD
        self.long_results = LongResults()
        self.duplicate_members: dict[tuple[int, int], str] = {}

    def file(self, number: int, path: Path, span: Span | None) -> None:
        """Read a file, or a span of it, and add its events and findings."""
        if span is not None:
            self.digests[path, span.size] = span.digest
        good = noise = 0
        bad: Counter[str] = Counter()
        tally = ReadTally()
        self.tallies.append(tally)
        for run in read_lines(path, room=self.room, digests=self.digests, span=span):
            tally.add(run)
            if isinstance(run, Damage):
                bad[run.rule] += 1
                self._find(number, run.line, run.rule, "error", run.message)
                continue
            if message := self.budget.exceeded_by(run):
                bad["archive.more_than_memory"] += 1
                self._find(number, run.first, "archive.more_than_memory", "error", message)
                tally.add(Damage(run.first, "", message, run.rest, len(run.data)))
                break
            events, line_numbers, faults = decode_run(run)
            good += len(events)
            noise += run.count - len(events)
            for line, rule, message in faults:
                bad[rule] += 1
                if rule != "transcript.torn_tail":  # the recording may still be running
                    tally.add_fault(line, message, len(run.line(line)))
                if bad[rule] <= MAX_FAULTS:
                    severity: Severity = "warning" if rule == "transcript.torn_tail" else "error"
                    self._find(number, line, rule, severity, message)
            self.waiting += events
            self.places.append((np.full(len(events), number, np.uint32), line_numbers))
            self.runs.append((number, run))
            self.bytes += len(run.data)
            if self.bytes >= BATCH or len(self.waiting) >= BATCH_EVENTS:
                self.batch()
            if self.budget.is_chunk_full():
                self._spool_chunk()
            if noise > MAX_NOISE_LINES:
                bad["archive.noise"] += 1
                self._find(number, run.first + run.count, "archive.noise", "error", NOISE_MESSAGE)
                tally.note(run.first + run.count, NOISE_MESSAGE)
                break
        for rule, count in bad.items():
            if count > MAX_FAULTS:
                message = f"{count - MAX_FAULTS} more lines of this file have the same fault"
                self._find(number, None, rule, "error", message)
        if not good and not bad:
            self._find(number, None, "archive.empty_file", "warning", "the file contains no event")

    def _find(
        self, number: int, line: int | None, rule: str, severity: Severity, message: str
    ) -> None:
        self.findings.append(
            Finding(
                rule=rule,
                severity=severity,
                about="file",
                file=self.names[number],
                line=line,
                message=message,
            )
        )

    def batch(self) -> None:
        """Convert the pending events to rows."""
        events, places = self.waiting, self.places
        self.waiting, self.places, self.bytes = [], [], 0
        if not events:
            self.runs = []
            return
        files, numbers = (np.concatenate(parts) for parts in zip(*places, strict=True))
        codes: dict[type[Any], int] = {event: code for code, event in enumerate(FRAME_OF_EVENT)}
        kinds = np.fromiter(map(codes.__getitem__, map(type, events)), np.int8, len(events))
        for event, code in codes.items():
            chosen = np.flatnonzero(kinds == code)
            if not chosen.size:
                continue
            items: list[Any] = [events[i] for i in chosen.tolist()]
            place = {"file": files[chosen], "line": numbers[chosen]}
            if event is MessageEvent:
                self._add_messages(items, place)
            elif event is HttpEvent:
                self._add_http(items, place)
            else:
                self._add(FRAME_OF_EVENT[event], frame_of(place | scalar_columns(items, event)))
            if event is RawFrame:
                self._add_heads(items, place)
        self.runs = []

    def _add_heads(self, items: list[RawFrame], place: dict[str, Any]) -> None:
        """Add truncated frames as messages if an id or a method was found in their heads."""
        chosen = [i for i, item in enumerate(items) if item.why == "too_large"]
        # The recorder writes a null id if it did not find an id in the head.
        for i in chosen:
            items[i].id = ABSENT if bytes(items[i].id) == b"null" else items[i].id
        known = [i for i in chosen if items[i].method is not None or len(items[i].id)]
        if known:
            messages = [message_from_head(items[i]) for i in known]
            of_known = {name: values[known] for name, values in place.items()}
            self._add_messages(messages, of_known, truncated=True)

    def _add_http(self, items: list[HttpEvent], place: dict[str, Any]) -> None:
        heads = [item.headers or _NO_HEADERS for item in items]
        columns = scalar_columns(items, HttpEvent) | scalar_columns(heads, Headers)
        self._add("http", frame_of(place | columns))

    def _add_messages(
        self, items: list[MessageEvent], place: dict[str, Any], *, truncated: bool = False
    ) -> None:
        columns = scalar_columns(items, MessageEvent)
        messages, owner, index, batch = split_batches(items)
        if owner is not None:
            rows_of_events = pl.Series(owner, dtype=pl.UInt32)
            columns = {name: series[rows_of_events] for name, series in columns.items()}
            place = {name: values[owner] for name, values in place.items()}
        size = len(messages)
        rows = np.arange(self.rows, self.rows + size, dtype=np.uint32)
        self.rows += size
        jsonrpc, ids, methods, params, results, errors = transpose(messages)
        method = pl.Series(methods, dtype=pl.String)
        members = {"jsonrpc": jsonrpc, "id": ids, "params": params}
        members |= {"result": results, "error": errors}
        sizes = {name: lengths(values) for name, values in members.items()}
        unexplained = unexplained_sizes(columns["bytes"], method, sizes)
        if unexplained.any() and not truncated:
            self._find_duplicates(place["file"][unexplained], place["line"][unexplained])
        has_result = sizes["result"] > 0
        has_error = sizes["error"] > 0
        self._add(
            "messages",
            frame_of(
                {"row": rows}
                | place
                | columns
                | {
                    "index": index,
                    "batch": batch,
                    "jsonrpc": json_texts(jsonrpc, sizes["jsonrpc"]),
                    "id": json_texts(ids, sizes["id"]),
                    "method": method,
                    "has_result": has_result,
                    "has_error": has_error,
                    "truncated": np.full(size, truncated),
                }
            ),
        )
        self._add_params(rows, method, params, np.flatnonzero(sizes["params"]))
        self._add_results(rows, results, has_result & ~has_error)
        self._add_errors(rows, errors, has_error)

    def _find_duplicates(self, files: npt.NDArray[np.uint32], numbers: LineNumbers) -> None:
        """Find duplicate members in lines that are longer than the sum of their members."""
        places = sorted(set(zip(files.tolist(), numbers.tolist(), strict=True)))[
            : self.rereads_left
        ]
        self.rereads_left -= len(places)
        runs = iter(self.runs)
        owner, run = next(runs)
        for file, line in places:
            while owner != file or line >= run.first + run.count:
                owner, run = next(runs)
            if names := repeated_members(run.line(line)):
                self.duplicate_members[file, line] = ", ".join(map(repr, names))[:200]

    def _add_params(
        self,
        rows: npt.NDArray[np.uint32],
        methods: pl.Series,
        params: Sequence[Raw],
        chosen: npt.NDArray[np.int64],
    ) -> None:
        if not chosen.size:
            return
        texts = [params[i] for i in chosen.tolist()]
        items, odd = PARAMS_DECODER.many(texts)
        metas = [item.meta or _NO_REQUEST_META for item in items]
        meta = {
            f"meta_{name}": series for name, series in scalar_columns(metas, RequestMeta).items()
        }
        asks = frame_of({"row": rows[chosen]} | scalar_columns(items, Params) | meta)
        methods = methods.gather(indices(chosen))
        calls_tool = (methods == "tools/call").fill_null(value=False).to_numpy()
        determined = calls_tool & asks.select(_IS_ORDINARY_CALL).to_series().to_numpy()
        determined[odd] = False
        kept = [ABSENT if drop else text for drop, text in zip(determined, texts, strict=True)]
        self._add("asks", asks.hstack([json_texts(kept).alias("params")]))

    def _add_results(
        self, rows: npt.NDArray[np.uint32], results: Sequence[Raw], has: npt.NDArray[np.bool_]
    ) -> None:
        chosen = np.flatnonzero(has)
        if not chosen.size:
            return
        decoded = self.long_results.decode([results[i] for i in chosen.tolist()])
        items, long = decoded.results, decoded.rows
        metas = [item.meta or _NO_RESULT_META for item in items]
        meta = {
            f"meta_{name}": series for name, series in scalar_columns(metas, ResultMeta).items()
        }
        columns = result_columns(items)
        if "structured_content" in long:
            columns["has_structured_content"] |= long["structured_content"].is_not_null()
        distinct = frame_of(
            {"response": json_texts(decoded.texts)}
            | columns
            | meta
            | {"odd": mask_at(decoded.odd, len(items))}
            | {f"{REFERENCE}{name}": series for name, series in long.items()}
        )
        of_rows = distinct[decoded.result_of_text]
        self._add("replies", of_rows.with_columns(series_from_numpy(rows[chosen], "row")))

    def _add_errors(
        self, rows: npt.NDArray[np.uint32], errors: Sequence[Raw], has: npt.NDArray[np.bool_]
    ) -> None:
        chosen = np.flatnonzero(has)
        if not chosen.size:
            return
        texts = [errors[i] for i in chosen.tolist()]
        items, odd = ERROR_DECODER.many(texts)
        for item, text in zip(items, texts, strict=True):
            if bytes(memoryview(text)[:1]) == b'"':  # a string instead of an error object
                item.message = msgspec.json.decode(text)
        columns = scalar_columns(items, Error)
        self._add(
            "replies",
            frame_of(
                {
                    "row": rows[chosen],
                    "response": json_texts(texts),
                    "error_code": columns["code"],
                    "error_message": columns["message"],
                    "error_data": columns["data"],
                    "odd": mask_at(odd, len(items)),
                }
            ),
        )

    def _add(self, name: str, frame: pl.DataFrame) -> None:
        self.frames.setdefault(name, []).append(frame)

    def _spool_chunk(self) -> None:
        """Move the rows to files: by recording, unless most of them belong to one recording."""
        # A chunk can be full only if a folder and a limit are set.
        assert self.slicing is not None and self.budget.limit is not None  # noqa: S101, PT018
        self.batch()
        if not self.frames:  # none of the lines was an event
            self.budget.skip_chunk()
            return
        size = self.budget.total
        self._end_chunk()
        if self.spool is None:
            recordings = pl.concat(
                table.get_column(Event.recording.name)
                for chunk in self.chunks
                for table in chunk.values()
                if "recording" in table.columns
            )
            most = max(recordings.value_counts()["count"].to_list())
            self.mapped.is_large = most * 2 > recordings.len()
            if self.mapped.is_large:
                self.chunks[-1] = self._moved(self.chunks[-1])
                self.budget.move_chunk()
                return
            self.spool = EventSpool(self.slicing, limit=self.budget.limit, read=self.budget.read)
            size = self.budget.read
        self.spool.add(self._take_tables(), size)
        self.budget.begin_chunk(self.spool.memory_of_shares().max(), self.spool.shares)

    def slices(self) -> Slices:
        """Return all decoded events and the findings about them, in slices if necessary."""
        findings = findings_frame(self.findings)
        duplicates = pl.DataFrame(
            [(*place, names) for place, names in sorted(self.duplicate_members.items())],
            schema=DuplicateMembers.schema(),
            orient="row",
        )
        self._end_chunk()
        tables = self._take_tables()
        if self.spool is not None:
            self.spool.add(tables, self.budget.total)
            shares = _shares(self.spool, findings, duplicates)
            return Slices(several=True, events=shares, digests=self.digests, tallies=self.tallies)
        events = [
            Events(**tables, findings=findings, duplicate_members=duplicates, mapped=self.mapped)
        ]
        del tables
        one = (events.pop() for _ in range(1))
        return Slices(several=False, events=one, digests=self.digests, tallies=self.tallies)

    def _end_chunk(self) -> None:
        """Build the tables of a chunk from the rows of its batches."""
        frames = {
            name: pl.concat([table.empty(), *self.frames.pop(name, ())], how="diagonal")
            for name, table in _TABLES.items()
        }
        frames["replies"] = self.long_results.with_texts(frames["replies"])
        self.long_results = LongResults()
        tables = {name: table.select(frames.pop(name)) for name, table in _TABLES.items()}
        self.chunks.append(self._moved(tables))

    def _moved(self, tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        return dict(zip(tables, self.mapped.move([*tables.values()]), strict=True))

    def _take_tables(self) -> dict[str, pl.DataFrame]:
        """Return the tables of all chunks, keyed by name, and start over without chunks."""
        chunks, self.chunks = self.chunks, []
        return {name: pl.concat(chunk.pop(name) for chunk in chunks) for name in _TABLES}


def _shares(
    spool: EventSpool, findings: pl.DataFrame, duplicate_members: pl.DataFrame
) -> Iterator[Events]:
    """Yield the events of each share of the recordings; the first item contains the findings."""
    empty = {name: table.empty() for name, table in _TABLES.items()}
    for share in range(spool.shares):
        if share == 0 or spool.has(share):
            # Don't assign to a variable: it would keep the tables in memory while the caller scores
            # them.
            yield Events(
                **spool.read(share, empty),
                findings=findings.clear() if share else findings,
                duplicate_members=duplicate_members,
                mapped=spool.mapped,
            )


MAX_REREAD: Final = 10_000
"""Maximum number of lines per partition that are read again to find duplicate members."""

MAX_FAULTS: Final = 1000
"""Maximum number of findings per file and rule; one more finding says how many were omitted."""

_IS_ORDINARY_CALL: Final = (
    RequestParams.name.col.is_not_null()
    & (RequestParams.arguments.col.is_null() | RequestParams.arguments.col.str.starts_with("{"))
    & RequestParams.task.col.is_null()
    & RequestParams.input_responses.col.is_null()
    & (
        RequestParams.meta_progress_token.col.is_null()
        | RequestParams.meta_progress_token.col.str.contains(r'^(?:"|-?\d+$)')
    )
)
"""Selects the parameters of tools/call requests that other columns describe completely. Their JSON
is not stored."""

_NO_HEADERS: Final = Headers()
_NO_REQUEST_META: Final = RequestMeta()
_NO_RESULT_META: Final = ResultMeta()
