"""Transcript lines to columns: the one stage that takes JSON apart.

    files → Events (frames of messages, asks, replies, http, recordings' ends, findings)

A run of lines is decoded by one native call into typed structs whose payloads stay raw bytes;
structs are turned over into columns by native calls too. What does not fit the types is decoded
again, alone, field by field: one bad line never costs its neighbours, and every line of a file
ends in some frame. Why this and not a columnar JSON reader: docs/decisions/0002-decode.md.
"""

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from msgspec import UNSET, Raw, Struct
from msgspec.structs import astuple

from mcptally.archive import Damage, Lines, lines
from mcptally.schema import Finding, Severity, findings_frame
from mcptally.shapes import (
    ABSENT,
    ERROR,
    EVENT,
    EVENTS,
    MEMBERS,
    MSG,
    OTHER_CONTENT,
    PARAMS,
    RESULT,
    AnyEvent,
    CloseEvent,
    Error,
    GapEvent,
    Headers,
    HttpEvent,
    MessageEvent,
    Msg,
    OpenEvent,
    Params,
    RawFrame,
    RequestMeta,
    Result,
    ResultMeta,
    StderrEvent,
)

TEXT_LIMIT: Final = 4000
"""Characters kept of the text of a result that is not marked as an error."""

ERROR_TEXT_LIMIT: Final = 65536
"""Characters kept of the text of an error."""


@dataclasses.dataclass(frozen=True, slots=True)
class Events:
    """What a set of transcript files holds, as frames. Times are UTC nanoseconds (`ts_ns`).

    `messages` has one row a message, batch members apart, in file order; its `row` is what
    `asks` (a request's or notification's parameters) and `replies` (a result or error) refer to.
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

    @property
    def empty(self) -> bool:
        """Whether no event at all was read."""
        frames = (self.messages, self.raws, self.http, self.opens, self.closes, self.stderr)
        return not any(frame.height for frame in frames)


def decode(files: Sequence[Path], names: Sequence[str] | None = None) -> Events:
    """Every event of `files`, in order; `names` are how findings call the files.

    Raises:
        UnreadableError: a file cannot be opened.
    """
    collect = _Collector(names or [str(path) for path in files])
    for number, path in enumerate(files):
        collect.file(number, path)
    return collect.events()


class _Collector:
    """Gathers the frames of run after run of lines."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.frames: dict[str, list[pl.DataFrame]] = {}
        self.rows = 0
        self.findings: list[Finding] = []

    def file(self, number: int, path: Path) -> None:
        good = 0
        bad: Counter[str] = Counter()
        for run in lines(path):
            if isinstance(run, Damage):
                self._find(number, run.line, run.rule, "error", run.message)
                continue
            events, line_numbers, faults = _events(run)
            good += len(events)
            for line, rule, message in faults:
                bad[rule] += 1
                if bad[rule] <= MAX_FAULTS:
                    severity: Severity = "warning" if rule == "transcript.torn_tail" else "error"
                    self._find(number, line, rule, severity, message)
            self._run(number, events, line_numbers)
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

    def _run(self, number: int, events: list[AnyEvent], numbers: npt.NDArray[np.int64]) -> None:
        codes: dict[type[Any], int] = {event: code for code, event in enumerate(EVENTS)}
        kinds = np.fromiter(map(codes.__getitem__, map(type, events)), np.int8, len(events))
        for event, code in codes.items():
            chosen = np.flatnonzero(kinds == code)
            if not chosen.size:
                continue
            items: list[Any] = [events[i] for i in chosen.tolist()]
            envelope = {
                "file": np.full(chosen.size, number, np.uint32),
                "line": numbers[chosen],
            }
            if event is MessageEvent:
                self._messages(items, envelope)
            elif event is HttpEvent:
                self._http(items, envelope)
            else:
                self._add(EVENTS[event], pl.DataFrame(envelope | _plain(items, event)))
            if event is RawFrame:
                self._too_large(items, envelope)

    def _too_large(self, items: list[RawFrame], envelope: dict[str, Any]) -> None:
        """Frames over the recorder's cap whose head was understood count as messages."""
        chosen = [i for i, item in enumerate(items) if item.why == "too_large"]
        # A null id is one that was not found in the head.
        for i in chosen:
            items[i].id = ABSENT if items[i].id == b"null" else items[i].id
        known = [i for i in chosen if items[i].method is not None or len(items[i].id)]
        if known:
            messages = [_from_head(items[i]) for i in known]
            where = {name: values[known] for name, values in envelope.items()}
            self._messages(messages, where, truncated=True)

    def _http(self, items: list[HttpEvent], envelope: dict[str, Any]) -> None:
        heads = [item.headers or _NO_HEADERS for item in items]
        columns = _plain(items, HttpEvent) | _plain(heads, Headers)
        self._add("http", pl.DataFrame(envelope | columns))

    def _messages(
        self, items: list[MessageEvent], envelope: dict[str, Any], *, truncated: bool = False
    ) -> None:
        columns = _plain(items, MessageEvent)
        messages, of, index, batch = _unbatched(items)
        if of is not None:
            columns = {name: series.gather(of) for name, series in columns.items()}
            envelope = {name: values[of] for name, values in envelope.items()}
        size = len(messages)
        rows = np.arange(self.rows, self.rows + size, dtype=np.uint32)
        self.rows += size
        _, ids, methods, params, results, errors = _turn(messages)
        has_result = _present(results)
        has_error = _present(errors)
        self._add(
            "messages",
            pl.DataFrame(
                {"row": rows}
                | envelope
                | columns
                | {
                    "index": index,
                    "batch": batch,
                    "jsonrpc": _texts([m.jsonrpc for m in messages]),
                    "id": _texts(ids),
                    "method": pl.Series(methods, dtype=pl.String),
                    "has_result": has_result,
                    "has_error": has_error,
                    "truncated": np.full(size, truncated),
                }
            ),
        )
        self._asks(rows, methods, params)
        self._results(rows, results, has_result & ~has_error)
        self._errors(rows, errors, has_error)

    def _asks(
        self,
        rows: npt.NDArray[np.uint32],
        methods: Sequence[str | None],
        params: Sequence[Raw],
    ) -> None:
        chosen = np.flatnonzero(_present(params))
        if not chosen.size:
            return
        texts = [params[i] for i in chosen.tolist()]
        items, odd = PARAMS.many(texts)
        metas = [item.meta or _NO_REQUEST_META for item in items]
        meta = {f"meta_{name}": series for name, series in _plain(metas, RequestMeta).items()}
        asks = pl.DataFrame({"row": rows[chosen]} | _plain(items, Params) | meta)
        calls_tool = np.fromiter(
            (methods[i] == "tools/call" for i in chosen.tolist()), np.bool_, chosen.size
        )
        settled = calls_tool & asks.select(_ORDINARY_CALL).to_series().to_numpy()
        settled[odd] = False
        rest = [ABSENT if done else text for done, text in zip(settled, texts, strict=True)]
        self._add("asks", asks.with_columns(_texts(rest).alias("params")))

    def _results(
        self, rows: npt.NDArray[np.uint32], results: Sequence[Raw], has: npt.NDArray[np.bool_]
    ) -> None:
        chosen = np.flatnonzero(has)
        if not chosen.size:
            return
        texts = [results[i] for i in chosen.tolist()]
        items, odd = RESULT.many(texts)
        metas = [item.meta or _NO_RESULT_META for item in items]
        meta = {f"meta_{name}": series for name, series in _plain(metas, ResultMeta).items()}
        columns = _plain(items, Result)
        structured = columns["structured_content"]
        self._add(
            "replies",
            pl.DataFrame(
                {"row": rows[chosen], "response": _texts(texts)}
                | columns
                | meta
                | _contents(items, columns["is_error"])
                | {
                    "has_structured_content": structured.is_not_null(),
                    "has_meta": [item.meta is not UNSET for item in items],
                    "odd": _marked(odd, len(items)),
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
        columns = _plain(items, Error)
        self._add(
            "replies",
            pl.DataFrame(
                {
                    "row": rows[chosen],
                    "response": _texts(texts),
                    "error_code": columns["code"],
                    "error_message": columns["message"],
                    "error_data": columns["data"],
                    "odd": _marked(odd, len(items)),
                }
            ),
        )

    def _add(self, name: str, frame: pl.DataFrame) -> None:
        self.frames.setdefault(name, []).append(frame)

    def events(self) -> Events:
        """All that was gathered."""
        return Events(
            **{name: self._frame(name) for name in _SCHEMAS},
            findings=findings_frame(self.findings),
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


def _schemas() -> dict[str, dict[str, pl.DataType]]:
    """Name → type of every frame's columns, from the shapes."""

    def of(*shapes: type[Struct]) -> dict[str, Any]:
        return {name: kind for shape in shapes for name, kind in _plain_types(shape).items()}

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


def _from_head(frame: RawFrame) -> MessageEvent:
    """What the recorder found in the head of a frame that it did not keep whole."""
    name = {} if frame.name is None else {"name": frame.name}
    message = Msg(id=frame.id, method=frame.method)
    if frame.method is not None:
        message.params = Raw(msgspec.json.encode(name))
    else:
        result = {} if frame.is_error is None else {"isError": frame.is_error}
        message.result = Raw(msgspec.json.encode(result))
    return MessageEvent(
        recording=frame.recording,
        seq=frame.seq,
        ts_ns=frame.ts_ns,
        dir=frame.dir,
        msg=message,
        scope=frame.scope,
        bytes=frame.bytes,
        sse_id=frame.sse_id,
    )


def _unbatched(
    items: Sequence[MessageEvent],
) -> tuple[list[Msg], npt.NDArray[np.int64] | None, npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """The messages of all events; of which event each is (None: one each), its index, batch."""
    for item in items:
        if item.msg == []:  # a batch of nothing is no message, and still a row
            item.msg = Msg()
    members = [item.msg if isinstance(item.msg, list) else None for item in items]
    if not any(m is not None for m in members):
        single = [item.msg for item in items if isinstance(item.msg, Msg)]
        return single, None, np.zeros(len(items), np.uint32), np.zeros(len(items), np.bool_)
    sizes = np.array([1 if m is None else len(m) for m in members])
    of = np.repeat(np.arange(len(items)), sizes)
    index = np.arange(of.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    messages: list[Msg] = []
    for item in items:
        messages += [item.msg] if isinstance(item.msg, Msg) else map(MSG.one, item.msg)
    batch = np.array([m is not None for m in members], np.bool_)[of]
    return messages, of, index.astype(np.uint32), batch


def _events(
    run: Lines,
) -> tuple[list[AnyEvent], npt.NDArray[np.int64], list[tuple[int, str, str]]]:
    """The events of a run of lines, their line numbers, and (line, rule, message) of the rest."""
    if _is_utf8(run.data):
        try:
            events: list[AnyEvent] = EVENT.decode_lines(run.data)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            if len(events) == run.count:
                return events, np.arange(run.first, run.first + run.count), []
    if run.count > _FEW:
        # Something in there is odd: halve until it stands nearly alone.
        cut = run.data.find(b"\n", len(run.data) // 2) + 1
        if 0 < cut < len(run.data):
            count = run.data.count(b"\n", 0, cut)
            halves = (
                Lines(run.data[:cut], run.first, count),
                Lines(run.data[cut:], run.first + count, run.count - count),
            )
            left, right = map(_events, halves)
            return left[0] + right[0], np.concatenate((left[1], right[1])), left[2] + right[2]
    return _one_by_one(run)


_FEW: Final = 32


def _one_by_one(
    run: Lines,
) -> tuple[list[AnyEvent], npt.NDArray[np.int64], list[tuple[int, str, str]]]:
    """The same, line by line."""
    events: list[AnyEvent] = []
    numbers: list[int] = []
    faults: list[tuple[int, str, str]] = []
    torn = None if run.data.endswith(b"\n") else run.first + run.count - 1
    for number, line in enumerate(run.data.split(b"\n"), start=run.first):
        if not line.strip():
            continue
        event = _event(line)
        if not isinstance(event, tuple):
            events.append(event)
            numbers.append(number)
        elif number == torn:
            message = "the last line is torn: the recorder was stopped, or is still writing"
            faults.append((number, "transcript.torn_tail", message))
        else:
            faults.append((number, *event))
    return events, np.array(numbers, np.int64), faults


def _event(line: bytes) -> AnyEvent | tuple[str, str]:
    """The event of one line, or the rule it breaks and a message."""
    if not _is_utf8(line):
        return "transcript.not_utf8", "the line is not UTF-8"
    try:
        return EVENT.decode(line)
    except RecursionError:
        return "transcript.too_deep", "JSON nested too deep"
    except msgspec.ValidationError as error:
        fault = str(error)
    except msgspec.DecodeError as error:
        return "transcript.not_json", f"not JSON: {error}"
    try:
        members = MEMBERS.decode(line)
        if bytes(members.get("event", b"")) == b'"message"' and "msg" in members:
            raw = members.pop("msg")
            members["msg"] = Raw(b"{}")
            event = EVENT.decode(msgspec.json.encode(members))
            if isinstance(event, MessageEvent):
                event.msg = MSG.one(raw)
                return event
    except (msgspec.DecodeError, RecursionError):
        pass
    return "transcript.not_an_event", f"not an event of transcript format 1: {fault}"


def _is_utf8(data: bytes) -> bool:
    """Whether the bytes are UTF-8; msgspec does not look inside the values it skips."""
    buffers = [None, pa.py_buffer(np.array([0, len(data)], np.int64)), pa.py_buffer(data)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _turn(items: Sequence[Struct]) -> list[tuple[Any, ...]]:
    """Structs to columns, natively."""
    return list(zip(*map(astuple, items), strict=True))


_TYPES: Final[dict[Any, pl.DataType]] = {
    str: pl.String(),
    str | None: pl.String(),
    Literal["c2s", "s2c"]: pl.String(),
    bool | None: pl.Boolean(),
    int: pl.Int64(),
    int | None: pl.Int64(),
    Raw: pl.String(),
}


@functools.cache
def _plain_types(shape: type[Struct]) -> dict[str, pl.DataType]:
    """The fields of `shape` that are strings, numbers, truths or raw JSON."""
    hints = get_type_hints(shape)
    return {name: _TYPES[hint] for name, hint in hints.items() if hint in _TYPES}


def _plain(items: Sequence[Struct], shape: type[Struct]) -> dict[str, pl.Series]:
    """The columns of `shape` that are strings, numbers, truths or raw JSON."""
    types = _plain_types(shape)
    return {
        field.name: _texts(values)
        if field.default is ABSENT
        else pl.Series(values, dtype=types[field.name])
        for field, values in zip(msgspec.structs.fields(shape), _turn(items), strict=True)
        if field.name in types
    }


def _marked(places: list[int], size: int) -> npt.NDArray[np.bool_]:
    """True at these places of `size`."""
    mask = np.zeros(size, np.bool_)
    mask[places] = True
    return mask


def _present(raws: Sequence[Raw]) -> npt.NDArray[np.bool_]:
    return np.fromiter(map(len, raws), np.int64, len(raws)) > 0


def _texts(raws: Sequence[Raw]) -> pl.Series:
    """Raw JSON values as a String column; null where the member is absent.

    The values are joined by one native call and become one Arrow buffer.
    """
    sizes = np.fromiter(map(len, raws), np.int64, len(raws))
    offsets = np.zeros(len(raws) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if not offsets[-1]:
        return pl.Series(values=[None], dtype=pl.String).extend_constant(None, len(raws) - 1)
    valid = np.packbits(sizes > 0, bitorder="little")
    data = b"".join(raws)
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.large_string(), len(raws), buffers)
    return pl.Series(array)


def _contents(items: Sequence[Result], is_error: pl.Series) -> dict[str, Any]:
    """What the content blocks of results are, and their text."""
    contents = [item.content for item in items]
    sizes = np.fromiter((len(c) if c else 0 for c in contents), np.int64, len(contents))
    ends = np.cumsum(sizes)
    blocks = list(itertools.chain.from_iterable(c for c in contents if c))
    kinds = ["absent" if c is UNSET else "null" if c is None else "array" for c in contents]
    if blocks:
        types, texts, *others, annotations, metas = _turn(blocks)
    else:
        types, texts, others, annotations, metas = (), (), [], (), ()
    type_column = pl.Series([t if t.__class__ is str else "" for t in types], dtype=pl.String)
    plain = np.fromiter((t.__class__ is str for t in types), np.bool_, len(types))
    plain &= np.fromiter((t is not None for t in texts), np.bool_, len(texts))
    for raws in others:
        if any(raws_present := list(map(len, raws))):
            plain &= np.fromiter(
                (
                    not size or bytes(memoryview(raw)[:1]) == b'"'
                    for raw, size in zip(raws, raws_present, strict=True)
                ),
                np.bool_,
                len(raws),
            )

    def count(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        sums = np.concatenate(([0], np.cumsum(mask)))
        return sums[ends] - sums[ends - sizes]  # type: ignore[no-any-return]

    def of(*names: str) -> npt.NDArray[np.int64]:
        return count(type_column.is_in(names).to_numpy())

    wrong = [i for i, c in enumerate(contents) if c and c[0] is OTHER_CONTENT]
    for i in wrong:
        kinds[i] = "other"
    is_text = [
        text if kind == "text" and text.__class__ is str else None
        for kind, text in zip(types, texts, strict=True)
    ]
    bare = np.fromiter((text is not None for text in is_text), np.bool_, len(is_text))
    bare &= ~_present(annotations) & ~_present(metas)
    limits = np.where((is_error == "true").fill_null(value=False), ERROR_TEXT_LIMIT, TEXT_LIMIT)
    first, joined = [], []
    for end, size, limit in zip(ends.tolist(), sizes.tolist(), limits.tolist(), strict=True):
        if size == 1:
            text = is_text[end - 1]
            text = text and text[:limit]
            first.append(text)
            joined.append(text)
        elif size:
            text = is_text[end - size]
            first.append(text and text[:limit])
            parts = [t[:limit] for t in is_text[end - size : end] if t is not None]
            joined.append("\n".join(parts)[:limit] if parts else None)
        else:
            first.append(None)
            joined.append(None)
    offsets = pa.array(np.concatenate(([0], ends)), pa.int64())
    lists = pa.LargeListArray.from_arrays(offsets, type_column.to_arrow())
    return {
        "content_kind": pl.Series(kinds, dtype=pl.String),
        "content_types": pl.Series(lists),
        "blocks_plain": count(~plain) == 0,
        "text_only": count(~bare) == 0,
        "text_blocks": of("text").astype(np.uint32),
        "image_blocks": of("image").astype(np.uint32),
        "audio_blocks": of("audio").astype(np.uint32),
        "resource_blocks": of("resource", "resource_link").astype(np.uint32),
        "first_text": pl.Series(first, dtype=pl.String),
        "text": pl.Series(joined, dtype=pl.String),
    }


_SCHEMAS: Final = _schemas()
