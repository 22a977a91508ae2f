"""Transcript lines to columns: the one stage that takes JSON apart.

    files → Events (frames of messages, asks, replies, http, recordings' ends, findings)

A run of lines is decoded by one native call into typed structs whose payloads stay raw bytes;
structs are turned over into columns by native calls too. What does not fit the types is decoded
again, alone, field by field: one bad line never costs its neighbours, and every line of a file
ends in some frame. Why this and not a columnar JSON reader: docs/decisions/0002-decode.md.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import UNSET, Raw, Struct

from mcptally.messages.batches import from_head, unbatched
from mcptally.messages.content_blocks import contents_of
from mcptally.messages.decode_lines import Numbers, events_of
from mcptally.messages.duplicate_members import odd_sizes, repeated
from mcptally.messages.memory_budget import Appetite
from mcptally.messages.struct_columns import (
    json_texts,
    lengths,
    marked,
    plain,
    plain_types,
    transpose,
)
from mcptally.tables.findings import Finding, Severity, findings_frame
from mcptally.transcript.events import (
    ABSENT,
    ERROR,
    EVENTS,
    PARAMS,
    RESULT,
    AnyEvent,
    CloseEvent,
    Error,
    GapEvent,
    Headers,
    HttpEvent,
    MessageEvent,
    OpenEvent,
    Params,
    RawFrame,
    RequestMeta,
    Result,
    ResultMeta,
    StderrEvent,
)
from mcptally.transcript.files import Damage, Lines, Room, lines
from mcptally.transcript.parse import MAX_NOISE, NOISE
from mcptally.wire.nesting import with_stack_room

BATCH: Final = 16 << 20
"""Bytes of lines whose structs wait to become columns: what a batch costs is felt no more, and
its memory is used again by the next."""


@dataclasses.dataclass(frozen=True, slots=True)
class Events:
    """What a set of transcript files holds, as frames. Times are UTC nanoseconds (`ts_ns`).

    `messages` has one row a message, batch members apart, in file order; its `row` is what
    `asks` (a request's or notification's parameters) and `replies` (a result or error) refer to.
    The others have one row an event, and all but those two begin with `ENVELOPE`.
    """

    messages: pl.DataFrame
    asks: pl.DataFrame
    replies: pl.DataFrame
    raws: pl.DataFrame
    http: pl.DataFrame
    opens: pl.DataFrame
    closes: pl.DataFrame
    gaps: pl.DataFrame
    stderr: pl.DataFrame
    findings: pl.DataFrame
    twice: pl.DataFrame
    """File and line of messages that have a member twice, and its `names`."""


@with_stack_room
def decode(
    files: Sequence[Path], names: Sequence[str] | None = None, *, memory: int | None = None
) -> Events:
    """Every event of `files`, in order; `names` are how findings call the files.

    What cannot be read is a finding. So is the rest of these files, which belong together, where
    they come to need more than `memory` bytes: if that is None, more than are free, which several
    files are asked for only once they are `appetite.LARGE`.

    Raises:
        McptallyError: a file behind a URL cannot be reached.
    """
    collect = _Collector(names or [str(path) for path in files], memory, alone=len(files) == 1)
    for number, path in enumerate(files):
        collect.file(number, path)
    return collect.events()


class _Collector:
    """Gathers frames, one batch of events after the other."""

    def __init__(self, names: Sequence[str], memory: int | None, *, alone: bool) -> None:
        self.names = names
        self.appetite = Appetite(memory, alone=alone)
        self.frames: dict[str, list[pl.DataFrame]] = {}
        self.rows = 0
        self.findings: list[Finding] = []
        self.waiting: list[AnyEvent] = []
        self.places: list[tuple[npt.NDArray[np.uint32], Numbers]] = []
        """File and line of those that wait."""
        self.runs: list[tuple[int, Lines]] = []
        """Their lines, which their payloads keep in memory anyway, and the file of each run."""
        self.bytes = 0
        self.room = Room()
        self.looks = MAX_ODD
        """Messages that may still be looked at once more."""
        self.twice: dict[tuple[int, int], str] = {}

    def file(self, number: int, path: Path) -> None:
        good = noise = 0
        bad: Counter[str] = Counter()
        for run in lines(path, room=self.room):
            if isinstance(run, Damage):
                bad[run.rule] += 1
                self._find(number, run.line, run.rule, "error", run.message)
                continue
            if message := self.appetite.too_much(run):
                bad["archive.more_than_memory"] += 1
                self._find(number, run.first, "archive.more_than_memory", "error", message)
                break
            events, line_numbers, faults = events_of(run)
            good += len(events)
            noise += run.count - len(events)
            for line, rule, message in faults:
                bad[rule] += 1
                if bad[rule] <= MAX_FAULTS:
                    severity: Severity = "warning" if rule == "transcript.torn_tail" else "error"
                    self._find(number, line, rule, severity, message)
            self.waiting += events
            self.places.append((np.full(len(events), number, np.uint32), line_numbers))
            self.runs.append((number, run))
            self.bytes += len(run.data)
            if self.bytes >= BATCH:
                self._batch()
            if noise > MAX_NOISE:
                bad["archive.noise"] += 1
                self._find(number, run.first + run.count, "archive.noise", "error", NOISE)
                break
        for rule, count in bad.items():
            if count > MAX_FAULTS:
                message = f"{count - MAX_FAULTS} more lines of this file have the same fault"
                self._find(number, None, rule, "error", message)
        if not good and not bad:
            self._find(number, None, "archive.empty_file", "warning", "the file holds no event")

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

    def _batch(self) -> None:
        """The waiting events become rows."""
        events, places = self.waiting, self.places
        self.waiting, self.places, self.bytes = [], [], 0
        if not events:
            self.runs = []
            return
        files, numbers = (np.concatenate(parts) for parts in zip(*places, strict=True))
        codes: dict[type[Any], int] = {event: code for code, event in enumerate(EVENTS)}
        kinds = np.fromiter(map(codes.__getitem__, map(type, events)), np.int8, len(events))
        for event, code in codes.items():
            chosen = np.flatnonzero(kinds == code)
            if not chosen.size:
                continue
            items: list[Any] = [events[i] for i in chosen.tolist()]
            envelope = {"file": files[chosen], "line": numbers[chosen]}
            if event is MessageEvent:
                self._messages(items, envelope)
            elif event is HttpEvent:
                self._http(items, envelope)
            else:
                self._add(EVENTS[event], pl.DataFrame(envelope | plain(items, event)))
            if event is RawFrame:
                self._too_large(items, envelope)
        self.runs = []

    def _too_large(self, items: list[RawFrame], envelope: dict[str, Any]) -> None:
        """Frames over the recorder's cap whose head was understood count as messages."""
        chosen = [i for i, item in enumerate(items) if item.why == "too_large"]
        # A null id is one that was not found in the head.
        for i in chosen:
            items[i].id = ABSENT if items[i].id == b"null" else items[i].id
        known = [i for i in chosen if items[i].method is not None or len(items[i].id)]
        if known:
            messages = [from_head(items[i]) for i in known]
            where = {name: values[known] for name, values in envelope.items()}
            self._messages(messages, where, truncated=True)

    def _http(self, items: list[HttpEvent], envelope: dict[str, Any]) -> None:
        heads = [item.headers or _NO_HEADERS for item in items]
        columns = plain(items, HttpEvent) | plain(heads, Headers)
        self._add("http", pl.DataFrame(envelope | columns))

    def _messages(
        self, items: list[MessageEvent], envelope: dict[str, Any], *, truncated: bool = False
    ) -> None:
        columns = plain(items, MessageEvent)
        messages, of, index, batch = unbatched(items)
        if of is not None:
            columns = {name: series.gather(of) for name, series in columns.items()}
            envelope = {name: values[of] for name, values in envelope.items()}
        size = len(messages)
        rows = np.arange(self.rows, self.rows + size, dtype=np.uint32)
        self.rows += size
        jsonrpc, ids, methods, params, results, errors = transpose(messages)
        method = pl.Series(methods, dtype=pl.String)
        members = {"jsonrpc": jsonrpc, "id": ids, "params": params}
        members |= {"result": results, "error": errors}
        sizes = {name: lengths(values) for name, values in members.items()}
        unequal = odd_sizes(columns["bytes"], method, sizes)
        if unequal.any() and not truncated:
            self._look_twice(envelope["file"][unequal], envelope["line"][unequal])
        has_result = sizes["result"] > 0
        has_error = sizes["error"] > 0
        self._add(
            "messages",
            pl.DataFrame(
                {"row": rows}
                | envelope
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
        self._asks(rows, method, params, np.flatnonzero(sizes["params"]))
        self._results(rows, results, has_result & ~has_error)
        self._errors(rows, errors, has_error)

    def _look_twice(self, files: npt.NDArray[np.uint32], numbers: Numbers) -> None:
        """Look whether these lines, which are longer than what they say, say something twice."""
        places = sorted(set(zip(files.tolist(), numbers.tolist(), strict=True)))[: self.looks]
        self.looks -= len(places)
        runs = iter(self.runs)
        owner, run = next(runs)
        texts: list[bytes] = []
        for file, line in places:
            while owner != file or line >= run.first + run.count:
                owner, run = next(runs)
                texts = []
            texts = texts or run.data.split(b"\n")
            if names := repeated(texts[line - run.first]):
                self.twice[file, line] = ", ".join(map(repr, names))[:200]

    def _asks(
        self,
        rows: npt.NDArray[np.uint32],
        methods: pl.Series,
        params: Sequence[Raw],
        chosen: npt.NDArray[np.int64],
    ) -> None:
        if not chosen.size:
            return
        texts = [params[i] for i in chosen.tolist()]
        items, odd = PARAMS.many(texts)
        metas = [item.meta or _NO_REQUEST_META for item in items]
        meta = {f"meta_{name}": series for name, series in plain(metas, RequestMeta).items()}
        asks = pl.DataFrame({"row": rows[chosen]} | plain(items, Params) | meta)
        calls_tool = (methods.gather(chosen) == "tools/call").fill_null(value=False).to_numpy()
        settled = calls_tool & asks.select(_ORDINARY_CALL).to_series().to_numpy()
        settled[odd] = False
        rest = [ABSENT if done else text for done, text in zip(settled, texts, strict=True)]
        self._add("asks", asks.with_columns(json_texts(rest).alias("params")))

    def _results(
        self, rows: npt.NDArray[np.uint32], results: Sequence[Raw], has: npt.NDArray[np.bool_]
    ) -> None:
        chosen = np.flatnonzero(has)
        if not chosen.size:
            return
        texts = [results[i] for i in chosen.tolist()]
        items, odd = RESULT.many(texts)
        metas = [item.meta or _NO_RESULT_META for item in items]
        meta = {f"meta_{name}": series for name, series in plain(metas, ResultMeta).items()}
        columns = plain(items, Result)
        structured = columns["structured_content"]
        self._add(
            "replies",
            pl.DataFrame(
                {"row": rows[chosen], "response": json_texts(texts)}
                | columns
                | meta
                | contents_of(items, columns["is_error"])
                | {
                    "has_structured_content": structured.is_not_null(),
                    "has_meta": [item.meta is not UNSET for item in items],
                    "odd": marked(odd, len(items)),
                }
            ),
        )

    def _errors(
        self, rows: npt.NDArray[np.uint32], errors: Sequence[Raw], has: npt.NDArray[np.bool_]
    ) -> None:
        chosen = np.flatnonzero(has)
        if not chosen.size:
            return
        texts = [errors[i] for i in chosen.tolist()]
        items, odd = ERROR.many(texts)
        for item, text in zip(items, texts, strict=True):
            if bytes(memoryview(text)[:1]) == b'"':  # an error that is a bare string
                item.message = msgspec.json.decode(text)
        columns = plain(items, Error)
        self._add(
            "replies",
            pl.DataFrame(
                {
                    "row": rows[chosen],
                    "response": json_texts(texts),
                    "error_code": columns["code"],
                    "error_message": columns["message"],
                    "error_data": columns["data"],
                    "odd": marked(odd, len(items)),
                }
            ),
        )

    def _add(self, name: str, frame: pl.DataFrame) -> None:
        self.frames.setdefault(name, []).append(frame)

    def events(self) -> Events:
        """All that was gathered."""
        self._batch()
        return Events(
            **{name: self._frame(name) for name in _SCHEMAS},
            findings=findings_frame(self.findings),
            twice=pl.DataFrame(
                [(*place, names) for place, names in sorted(self.twice.items())],
                schema=_TWICE,
                orient="row",
            ),
        )

    def _frame(self, name: str) -> pl.DataFrame:
        empty = pl.DataFrame(schema=_SCHEMAS[name])
        frame: pl.DataFrame = pl.concat([empty, *self.frames.get(name, ())], how="diagonal")
        return frame


ENVELOPE: Final = {
    "file": pl.UInt32(),
    "line": pl.Int64(),
    "recording": pl.String(),
    "seq": pl.Int64(),
    "ts_ns": pl.Int64(),
}
"""Columns of every event: index of the file, number of its line from 1, and the event's own."""


_TWICE: Final = {"file": pl.UInt32(), "line": pl.Int64(), "names": pl.String()}


def _schemas() -> dict[str, dict[str, pl.DataType]]:
    """Name → type of every frame's columns, from the shapes."""

    def of(*shapes: type[Struct]) -> dict[str, Any]:
        return {name: kind for shape in shapes for name, kind in plain_types(shape).items()}

    def meta(shape: type[Struct]) -> dict[str, Any]:
        return {f"meta_{name}": kind for name, kind in of(shape).items()}

    text, number, truth = pl.String(), pl.Int64(), pl.Boolean()
    count = pl.UInt32()
    replies = {"row": count, "response": text, **of(Result), **meta(ResultMeta)}
    replies |= {"content_kind": text, "content_types": pl.List(pl.String), "blocks_plain": truth}
    replies |= {"text_only": truth, "odd": truth}
    replies |= dict.fromkeys(
        ("text_blocks", "image_blocks", "audio_blocks", "resource_blocks"), count
    )
    replies |= {"first_text": text, "text": text, "has_structured_content": truth}
    replies |= {"has_meta": truth, "error_code": number, "error_message": text, "error_data": text}
    messages = {"row": count, **ENVELOPE, **of(MessageEvent), "index": count, "batch": truth}
    messages |= {"jsonrpc": text, "id": text, "method": text}
    messages |= {"has_result": truth, "has_error": truth, "truncated": truth}
    return {
        "messages": messages,
        "asks": {"row": count, **of(Params), **meta(RequestMeta), "params": text},
        "replies": replies,
        "raws": ENVELOPE | of(RawFrame),
        "http": ENVELOPE | of(HttpEvent, Headers),
        "opens": ENVELOPE | of(OpenEvent),
        "closes": ENVELOPE | of(CloseEvent),
        "gaps": ENVELOPE | of(GapEvent),
        "stderr": ENVELOPE | of(StderrEvent),
    }


MAX_ODD: Final = 10_000
"""Messages of a partition, longer than their members, that are looked at once more."""

MAX_FAULTS: Final = 1000
"""Findings kept a file and fault; the rest is counted in one more."""

_ORDINARY_CALL: Final = (
    pl.col("name").is_not_null()
    & (pl.col("arguments").is_null() | pl.col("arguments").str.starts_with("{"))
    & pl.col("task").is_null()
    & pl.col("input_responses").is_null()
    & (
        pl.col("meta_progress_token").is_null()
        | pl.col("meta_progress_token").str.contains(r'^(?:"|-?\d+$)')
    )
)
"""Parameters of tools/call whose shape these columns settle: the text itself is not kept."""

_NO_HEADERS: Final = Headers()
_NO_REQUEST_META: Final = RequestMeta()
_NO_RESULT_META: Final = ResultMeta()


_SCHEMAS: Final = _schemas()
