"""Finds servers' requests for input from the user or the client's model, and how long they took.

Up to 2025-11-25, a server sends its own request while it handles the client's request. From
2026-07-28 on, the result of the client's request says that input is required, and the client
repeats the request with the input; the two requests form a chain (`attempts`). A task that requires
input reports this when the client polls it, and receives the input through `tasks/update`.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.messages.call_tables import PairedCalls
from mcptally.messages.event_tables import RequestParams
from mcptally.tables.calls import MS_PER_NS, Calls
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.input_requests import InputRequests
from mcptally.tables.joins import left_join_columns
from mcptally.tables.queries import run_query
from mcptally.tables.stages import GatheredCalls

INPUT_METHODS: Final = ("elicitation/create", "sampling/createMessage", "roots/list")
"""Methods with which a server requests input: from the user, the client's model, or its roots."""

STATE_OF_TASK: Final = "tasks/get"
UPDATE_OF_TASK: Final = "tasks/update"

_RELATED_TASK: Final = '$._meta["io.modelcontextprotocol/related-task"].taskId'


class _Served(StageTable):
    """The columns that `add_waiting` adds to calls."""

    waiting_ms = GatheredCalls.waiting_ms
    input_mode = GatheredCalls.input_mode
    serves = GatheredCalls.serves


class _Open(StageTable):
    """One row per server request, with the client's calls that were open when it arrived."""

    asking = Column(pl.String, "Call id of the server's request.")
    call_id = Calls.call_id
    asked_ns = Column(pl.Int64, "Time of the server's request.", "ns")
    waited_ns = Column(pl.Int64, "Time until its answer.", "ns")
    begin = Column(pl.Int64, "Time of the client's call.", "ns")
    end = Column(pl.Int64, "Time of its reply or cancellation.", "ns")
    way = Column(pl.Int32, "How the two are linked: the lowest number is the surest.")
    open = Column(pl.Int64, "Number of calls that are open.")
    number = Column(pl.Int64, "Number of the call, or the sum of the numbers of all open calls.")


def add_waiting(calls: pl.DataFrame, asks: pl.DataFrame) -> pl.DataFrame:
    """Add how long each call waited for input, and which call each server request serves.

    The waiting time is subtracted from the latency, so that the latency includes only the server's
    time.

    Args:
        calls: `PairedCalls`; additional columns are retained.
        asks: `RequestParams`.
    """
    methods = calls.get_column(PairedCalls.method.name)
    is_input = methods == INPUT_METHODS[0]
    for name in INPUT_METHODS[1:]:
        is_input |= methods == name
    asked = calls.filter(is_input & (calls.get_column(PairedCalls.dir.name) == "s2c"))
    updates = (methods == UPDATE_OF_TASK).any()
    if not asked.height and not updates:
        return left_join_columns(calls, _Served.empty())
    params = asks.lazy().select(RequestParams.row.name, RequestParams.params.name)
    asked = left_join_columns(asked, params, PairedCalls.row.name)
    served = _served(asked, calls)
    if updates:
        served = pl.concat([served, _served_by_updates(calls)])
    waits = served.group_by(Calls.call_id.name).agg(
        # Sum integers: a sum of floats would depend on the order of addition, which varies between
        # threads.
        (_Open.waited_ns.col.sum() * MS_PER_NS).alias(_Served.waiting_ms.name)
    )
    modes = served.select(
        _Open.asking.col.alias(Calls.call_id.name),
        _Served.input_mode.name,
        Calls.call_id.col.alias(_Served.serves.name),
    )
    facts = pl.concat([waits, modes], how="diagonal").filter(Calls.call_id.col.is_not_null())
    calls = left_join_columns(calls, facts.unique(Calls.call_id.name), Calls.call_id.name)
    share = Calls.latency_ms.col - _Served.waiting_ms.col.fill_null(0)
    return calls.with_columns(pl.max_horizontal(share, 0.0 * share).alias(Calls.latency_ms.name))


def _served(asked: pl.DataFrame, calls: pl.DataFrame) -> pl.LazyFrame:
    """Return each server request (`asking`) and the client's call that it serves.

    If the request names a task, it serves the call that started that task. Otherwise it serves the
    only open call in the same HTTP exchange or session.
    """
    begin, end = PairedCalls.ts_ns.col, PairedCalls.reply_ns.col
    scope, session = PairedCalls.scope.name, PairedCalls.session.name
    requests = asked.lazy().select(
        PairedCalls.recording.name,
        session,
        scope,
        asking=Calls.call_id.col,
        asked_ns=begin,
        waited_ns=end - begin,
        input_mode=pl.when(PairedCalls.method.col == INPUT_METHODS[0]).then(
            RequestParams.params.col.str.json_path_match("$.mode").fill_null("form")
        ),
        task_id=RequestParams.params.col.str.json_path_match(_RELATED_TASK),
    )
    open_ = calls.lazy().filter(
        PairedCalls.dir.col == "c2s",
        PairedCalls.method.col.is_in(["tools/call", "prompts/get", "resources/read"]),
    )
    open_ = open_.select(
        Calls.call_id.name,
        PairedCalls.recording.name,
        session,
        scope,
        PairedCalls.task_id.name,
        begin=begin,
        end=pl.coalesce(end, PairedCalls.cancelled_ns.col),
    )
    open_ = open_.with_row_index(_Open.number.name).with_columns(_Open.number.col.cast(pl.Int64))
    # Treat calls that started tasks as open, because the end of a task may not be recorded.
    started = open_.with_columns(end=pl.lit(None, pl.Int64))
    ways = [
        _open_calls(requests, started, [PairedCalls.recording.name, PairedCalls.task_id.name]),
        _open_calls(requests, open_, [PairedCalls.recording.name, scope]),
        _open_calls(requests, open_, [session]),
    ]
    found = pl.concat([rows.with_columns(way=pl.lit(way)) for way, rows in enumerate(ways)])
    best = found.filter(_Open.way.col == _Open.way.col.min().over("asking"))
    alone = best.filter(_Open.open.col == 1).join(
        open_.select(Calls.call_id.name, _Open.number.name), on=_Open.number.name
    )
    return requests.join(alone, on="asking", how="left").select(
        "asking", Calls.call_id.name, "waited_ns", _Served.input_mode.name
    )


def _open_calls(requests: pl.LazyFrame, calls: pl.LazyFrame, keys: Sequence[str]) -> pl.LazyFrame:
    """Find the server requests that arrived while calls with the same `keys` were open.

    The function uses a running sum, because a join would pair each request with every earlier call
    in the session.

    Returns:
        `asking` (the server's request), `open` (how many calls were open) and `number` (the call's
        number, if exactly one was open).
    """
    calls = calls.drop_nulls(keys).filter(
        _Open.end.col.is_null() | (_Open.begin.col <= _Open.end.col)
    )
    number = _Open.number.col
    steps = [
        calls.select(*keys, number, at="begin", order=pl.lit(0), open=pl.lit(1, pl.Int64)),
        requests.drop_nulls(keys).select(*keys, "asking", at="asked_ns", order=pl.lit(1)),
        calls.drop_nulls("end").select(
            *keys, -number, at="end", order=pl.lit(2), open=pl.lit(-1, pl.Int64)
        ),
    ]
    sums = [each.fill_null(0).cum_sum().over(keys) for each in (_Open.open.col, number)]
    return (
        pl.concat(steps, how="diagonal")
        .sort("at", "order")
        .with_columns(sums)
        .filter(_Open.asking.col.is_not_null() & (_Open.open.col > 0))
        .select("asking", _Open.open.name, _Open.number.name)
    )


def _served_by_updates(calls: pl.DataFrame) -> pl.LazyFrame:
    """Return requests in which tasks require or get input, with the calls that started the tasks.

    If several replies require the same input, only the first reply is returned. The wait lasts from
    the first reply to `tasks/update`.
    """
    task = [PairedCalls.recording.name, PairedCalls.task_id.name]
    method, gets = PairedCalls.method.col, PairedCalls.method.col == UPDATE_OF_TASK
    requires = (method == STATE_OF_TASK) & PairedCalls.response.col.str.contains(
        '"inputRequests"', literal=True
    ).fill_null(value=False)
    starts = calls.lazy().filter(method == "tools/call", PairedCalls.task_id.col.is_not_null())
    return (
        calls.lazy()
        .filter(method.is_in([STATE_OF_TASK, UPDATE_OF_TASK]))
        .filter(gets | requires)
        .sort(PairedCalls.pos.name)
        .with_columns(round=gets.cast(pl.Int32).cum_sum().over(task) - gets.cast(pl.Int32))
        .unique([*task, "round", PairedCalls.method.name], keep="first", maintain_order=True)
        .with_columns(since=PairedCalls.reply_ns.col.filter(~gets).first().over([*task, "round"]))
        .join(starts.select(*task, started=Calls.call_id.name), on=task)
        .select(
            asking=Calls.call_id.name,
            call_id="started",
            waited_ns=pl.when(gets).then(PairedCalls.ts_ns.col - pl.col("since")),
            input_mode=pl.lit(None, pl.String),
        )
    )


class _Legs(StageTable):
    """The columns of calls that `list_input_requests` reads."""

    call_id = Calls.call_id
    recording = Calls.recording
    session = Calls.session
    server = Calls.server
    tool = Calls.tool
    dir = Calls.dir
    client = Calls.client
    method = Calls.method
    outcome = Calls.outcome
    ts_ns = GatheredCalls.ts_ns
    reply_ns = GatheredCalls.reply_ns
    response = GatheredCalls.response
    input_responses = GatheredCalls.input_responses
    continued_by = Calls.continued_by
    input_mode = GatheredCalls.input_mode
    serves = GatheredCalls.serves


class _InputRequest(msgspec.Struct):
    method: Any = None
    params: Any = None


class _Links(msgspec.Struct):
    elicitations: list[dict[str, Any]] = []


class _RequiredInput(msgspec.Struct, rename="camel"):
    """A result that requires input, or the `data` member of an error that requires a sign-in."""

    input_requests: dict[str, _InputRequest] = {}
    data: _Links | None = None


class _Answer(msgspec.Struct):
    action: Any = None


def list_input_requests(calls: pl.DataFrame) -> pl.DataFrame | None:
    """List the requests for input in calls, as rows of `RequestedInputs`; None if there are none.

    Args:
        calls: calls with their outcomes and links.
    """
    is_input = Calls.method.col.is_in(INPUT_METHODS) & (Calls.dir.col == "s2c")
    methods, outcomes = (calls.get_column(c.name) for c in (Calls.method, Calls.outcome))
    required = (outcomes == "input_required").any()
    required |= (methods == UPDATE_OF_TASK).any()
    if not required and not any((methods == name).any() for name in INPUT_METHODS):
        return None
    legs = _Legs.select(calls).lazy()
    following = legs.select(
        Calls.call_id.col.alias(Calls.continued_by.name),
        GatheredCalls.ts_ns.col.alias("next_ns"),
        GatheredCalls.input_responses.col.alias("answers"),
    )
    served = legs.select(
        Calls.call_id.col.alias(GatheredCalls.serves.name), Calls.tool.col.alias("served_tool")
    )
    updates = legs.filter(Calls.method.col == UPDATE_OF_TASK).select(
        GatheredCalls.serves.name,
        GatheredCalls.ts_ns.col.alias("next_ns"),
        GatheredCalls.input_responses.col.alias("answers"),
    )
    of_tasks = (
        legs.filter((Calls.method.col == STATE_OF_TASK) & GatheredCalls.serves.col.is_not_null())
        .sort(GatheredCalls.reply_ns.name)
        .join_asof(
            updates.sort("next_ns"),
            left_on=GatheredCalls.reply_ns.name,
            right_on="next_ns",
            by=GatheredCalls.serves.name,
            strategy="forward",
            check_sortedness=False,
        )
    )
    of_legs = legs.filter(is_input | (Calls.outcome.col == "input_required")).join(
        following, on=Calls.continued_by.name, how="left", maintain_order="left"
    )
    chosen = (
        pl.concat([of_legs, of_tasks])
        .join(served, on=GatheredCalls.serves.name, how="left", maintain_order="left")
        .pipe(run_query)
    )
    rows = [found for row in chosen.iter_rows(named=True) for found in _requests_of(row)]
    return pl.DataFrame(rows, schema=RequestedInputs.schema(), orient="row")


class RequestedInputs(StageTable):
    """The columns of `InputRequests`, with times in nanoseconds."""

    call_id = InputRequests.call_id
    input_key = InputRequests.input_key
    recording = InputRequests.recording
    session = InputRequests.session
    server = InputRequests.server
    tool = InputRequests.tool
    client = InputRequests.client
    method = InputRequests.method
    mode = InputRequests.mode
    action = InputRequests.action
    asked_ns = Column(pl.Int64, "When the input was asked for.", "ns")
    answered_ns = Column(pl.Int64, "When it came; null if it did not.", "ns")


def _requests_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the requests for input that a call contains.

    If the server made the call, the call itself is the request. Otherwise, the call is part of a
    chain, and its response contains the requests.
    """
    place = {name: row[name] for name in ("recording", "session", "server", "client")}
    if row["dir"] == "s2c":
        answer = _decoded(row["response"], _Answer, _Answer())
        about = {
            "call_id": row["serves"] or row["call_id"],
            "input_key": row["call_id"],
            "tool": row["served_tool"],
            "method": row["method"],
            "mode": row["input_mode"],
            "asked_ns": row["ts_ns"],
            "answered_ns": row["reply_ns"],
        }
        return [place | about | {"action": _text(answer.action)}]
    answers = _decoded(row["answers"], dict[str, _Answer], {})
    required = _decoded(row["response"], _RequiredInput, _RequiredInput())
    return [
        place
        | {
            "call_id": row["serves"] or row["call_id"],
            "input_key": key,
            "tool": row["served_tool"] or row["tool"],
            "method": _text(request.method),
            "mode": _mode(request),
            "action": _text(answers[key].action) if key in answers else None,
            "asked_ns": row["reply_ns"],
            "answered_ns": row["next_ns"] if key in answers else None,
        }
        for key, request in required.input_requests.items()
    ] + [
        place
        | {
            "call_id": row["call_id"],
            "input_key": _text(link.get("elicitationId")) or str(number),
            "tool": row["tool"],
            "method": INPUT_METHODS[0],
            "mode": _text(link.get("mode")) or "url",
            "action": None,
            "asked_ns": row["reply_ns"],
            "answered_ns": row["next_ns"],
        }
        for number, link in enumerate(required.data.elicitations if required.data else ())
    ]


def _mode(request: _InputRequest) -> str | None:
    if request.method != INPUT_METHODS[0]:
        return None
    mode = request.params.get("mode") if isinstance(request.params, dict) else None
    return _text(mode) or "form"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _decoded(text: str | None, kind: Any, default: Any) -> Any:
    try:
        return default if text is None else msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return default
