"""Links requests that are attempts at the same operation; linked requests form a chain.

A link goes from a request that provides input to the request that required it, from requests about
a task to the call that started it, from a handshake to the failed `server/discover` before it, or
from a retry to the failed call.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.messages.tasks import ABOUT_TASK
from mcptally.tables.arrow import indices, series_from_numpy
from mcptally.tables.calls import MS_PER_NS, Calls
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.outcomes import UNSUCCESSFUL
from mcptally.tables.queries import run_query
from mcptally.tables.stages import GatheredCalls

RETRY_WITHIN: Final = 10 * 60 * 10**9
"""Maximum time in nanoseconds between a failed call and its retry, which is an identical call in
the same session."""


class _Rows(StageTable):
    """The columns of calls that `link_attempts` reads."""

    pos = GatheredCalls.pos
    recording = GatheredCalls.recording
    session = GatheredCalls.session
    method = GatheredCalls.method
    arguments = GatheredCalls.arguments
    outcome = GatheredCalls.outcome
    error_code = GatheredCalls.error_code
    tool = GatheredCalls.tool
    prompt = GatheredCalls.prompt
    resource_uri = GatheredCalls.resource_uri
    ts_ns = GatheredCalls.ts_ns
    reply_ns = GatheredCalls.reply_ns
    cancelled_ns = GatheredCalls.cancelled_ns
    task_id = GatheredCalls.task_id
    request_state = GatheredCalls.request_state
    reply_state = GatheredCalls.reply_state
    input_responses = GatheredCalls.input_responses


class _Links(StageTable):
    """One row per call that is a further attempt, with the index of the previous attempt."""

    i = Column(pl.UInt32, "Index of the call in the frame of calls.")
    previous = Column(pl.UInt32, "Index of the earlier call.")
    why = Column(pl.String, "Value of `attempt_why`.")


def link_attempts(calls: pl.DataFrame) -> pl.DataFrame:
    """Add `attempt_of`, `attempt`, `attempt_why` and `continued_by` to the calls.

    An unlinked call is attempt 1 of itself. In a chain of requests with input, the last request
    gets the total latency of all requests, and the time between requests as `waiting_ms`.

    Args:
        calls: a partition's calls with their outcomes; all columns are retained.
    """
    sorted_rows = _Rows.select(calls).with_row_index(_Links.i.name).sort(_Rows.pos.col)
    rows = sorted_rows.lazy()
    outcome = _Rows.outcome.col
    waits, starts_task, probes = sorted_rows.select(
        waits=(outcome == "input_required").any(),
        starts_task=_starts_task().any(),
        probes=_is_failed_probe().any(),
    ).row(0)
    found = [
        *(_input_links(rows) if waits else ()),
        *(_task_links(rows) if starts_task else ()),
        *(_negotiation_links(rows) if probes else ()),
        *_retry_links(rows),
    ]
    links = _Links.select(
        pl.concat(found).unique(_Links.i.name, keep="first", maintain_order=True).pipe(run_query)
    )
    root, depth = _resolve(calls.height, links)
    why = pl.Series([None], dtype=_Links.why.dtype).new_from_index(0, calls.height)
    if links.height:
        why = why.scatter(links.get_column(_Links.i.name), links.get_column(_Links.why.name))
    ids = calls.get_column(Calls.call_id.name)
    calls = calls.hstack(
        [
            ids[indices(root)].alias(Calls.attempt_of.name),
            series_from_numpy(depth + 1, Calls.attempt.name).cast(Calls.attempt.dtype),
            why.alias(Calls.attempt_why.name),
        ]
    )
    legs = links.filter(_Links.why.col == "input_required") if waits else links.clear()
    return _as_operations(calls, legs.unique(_Links.previous.name) if legs.height else legs)


def _as_operations(calls: pl.DataFrame, legs: pl.DataFrame) -> pl.DataFrame:
    """Add `continued_by`; give the last call of each chain the total latency and waiting time."""
    continued = pl.Series(Calls.continued_by.name, [None], dtype=pl.String)
    continued = continued.new_from_index(0, calls.height)
    if not legs.height:
        return calls.hstack([continued])
    ids = calls.get_column(Calls.call_id.name)
    root, _ = _resolve(calls.height, legs)
    leg, previous = legs.get_column(_Links.i.name), legs.get_column(_Links.previous.name)
    waited = calls.select(
        (GatheredCalls.ts_ns.col.gather(leg) - GatheredCalls.reply_ns.col.gather(previous))
        * MS_PER_NS
    ).to_series()
    between = pl.Series([None], dtype=pl.Float64).new_from_index(0, calls.height)
    calls = calls.with_columns(
        continued.scatter(previous, ids[leg]),
        between.scatter(leg, waited).alias("between"),
        series_from_numpy(root, "root"),
    )
    chained, last = pl.len().over("root") > 1, Calls.continued_by.col.is_null()
    latency, waiting = Calls.latency_ms.col, Calls.waiting_ms.col
    every_wait = pl.sum_horizontal(waiting, "between").sum().over("root")
    return calls.with_columns(
        pl.when(~chained).then(latency).when(last).then(latency.sum().over("root")),
        pl.when(~chained).then(waiting).when(last).then(every_wait),
    ).drop("between", "root")


def _resolve(size: int, links: pl.DataFrame) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return, for each call, the index of its chain's first call and the number of links to it."""
    root = np.arange(size)
    root[links.get_column(_Links.i.name).to_numpy()] = links.get_column(
        _Links.previous.name
    ).to_numpy()
    depth = (root != np.arange(size)).astype(np.int64)
    while True:
        next_root = root[root]
        if (next_root == root).all():
            return root, depth
        depth += depth[root]
        root = next_root


def _links(rows: pl.LazyFrame, why: str) -> pl.LazyFrame:
    """Convert rows to `_Links`, dropping links from a call to itself.

    Args:
        rows: the linked calls.
        why: the reason for the link.
    """
    return rows.filter(_Links.i.col != _Links.previous.col).select(
        _Links.i.col.cast(_Links.i.dtype),
        _Links.previous.col.cast(_Links.previous.dtype),
        pl.lit(why).alias(_Links.why.name),
    )


def _input_links(rows: pl.LazyFrame) -> Iterator[pl.LazyFrame]:
    """Link each request that provides input to the call that required the input.

    The call is found by `requestState` or, if that is absent, by method and target.
    """
    pos, session, method = _Rows.pos, _Rows.session, _Rows.method
    state, reply_state = _Rows.request_state, _Rows.reply_state
    waiting = rows.filter(_Rows.outcome.col == "input_required").with_columns(
        _Links.i.col.alias(_Links.previous.name)
    )
    answers = rows.filter(state.col.is_not_null() | _Rows.input_responses.col.is_not_null())
    by_state = answers.drop_nulls(state.name).join_asof(
        waiting.select(
            pos.col, session.col, _Links.previous.col, reply_state.col.alias(state.name)
        ).drop_nulls(),
        on=pos.name,
        by=[session.name, state.name],
        check_sortedness=False,
        allow_exact_matches=False,
    )
    target = pl.coalesce(
        _Rows.tool.col,
        _Rows.prompt.col,
        _Rows.resource_uri.col,
        pl.lit(""),
    ).alias("target")
    by_name = answers.filter(state.col.is_null()).with_columns(target)
    by_name = by_name.join_asof(
        waiting.filter(reply_state.col.is_null()).select(
            pos.col, session.col, method.col, target, _Links.previous.col
        ),
        on=pos.name,
        by=[session.name, method.name, "target"],
        check_sortedness=False,
        allow_exact_matches=False,
    )
    for part in (by_state, by_name):
        yield _links(part.drop_nulls(_Links.previous.name), "input_required")


def _task_links(rows: pl.LazyFrame) -> Iterator[pl.LazyFrame]:
    """Link each request about a task to the earlier call that started the task."""
    recording, task_id = _Rows.recording, _Rows.task_id
    about = rows.filter(_is_about_task()).drop_nulls(task_id.name)
    tasks = rows.filter(_starts_task()).select(
        recording.col,
        task_id.col,
        _Links.i.col.alias(_Links.previous.name),
        _Rows.pos.col.alias("started_pos"),
    )
    key = [recording.name, task_id.name]
    found = about.join(tasks.unique(key, keep="first", maintain_order=True), on=key)
    # Requests about tasks may also start tasks. Link only to earlier calls, to avoid cycles.
    yield _links(found.filter(pl.col("started_pos") < _Rows.pos.col), "task")


def _is_about_task() -> pl.Expr:
    return _Rows.method.col.is_in(ABOUT_TASK)


def _starts_task() -> pl.Expr:
    return _Rows.task_id.col.is_not_null() & ~_is_about_task()


def _negotiation_links(rows: pl.LazyFrame) -> Iterator[pl.LazyFrame]:
    """Link each handshake to the failed `server/discover` that it replaces."""
    pos, recording = _Rows.pos, _Rows.recording
    probes = rows.filter(_is_failed_probe()).select(
        pos.col, recording.col, _Links.i.col.alias(_Links.previous.name)
    )
    handshakes = rows.filter(_Rows.method.col == "initialize")
    linked = handshakes.join_asof(probes, on=pos.name, by=recording.name, check_sortedness=False)
    yield _links(linked.drop_nulls(_Links.previous.name), "negotiation")


def _is_failed_probe() -> pl.Expr:
    return (_Rows.method.col == "server/discover") & _Rows.outcome.col.is_in(UNSUCCESSFUL)


def _retry_links(rows: pl.LazyFrame) -> Iterator[pl.LazyFrame]:
    """Link each call to the preceding failed call to the same tool with the same arguments.

    If the failed call required a sign-in, the link is a continuation, not a retry.
    """
    sent, tool = _Rows.ts_ns, _Rows.tool
    # Among replies that require input, only the error `-32042` has a code.
    signs_in = (_Rows.outcome.col == "input_required") & _Rows.error_code.col.is_not_null()
    tried = rows.filter((_Rows.method.col == "tools/call") & tool.col.is_not_null())
    # Group by a hash of the arguments, because hashing a struct would copy the arguments.
    group = [
        _Rows.session.col,
        tool.col,
        pl.when(_Rows.arguments.col.is_null())
        .then(pl.lit("{}").hash())
        .otherwise(_Rows.arguments.col.hash()),
    ]
    linked = (
        tried.select(
            _Links.i.col,
            _Rows.pos.col,
            _Rows.outcome.col,
            _Rows.error_code.col,
            sent.col,
            ended_ns=pl.coalesce(_Rows.reply_ns.col, _Rows.cancelled_ns.col, sent.col),
            same=pl.struct(*group).hash(),
        )
        .sort(pl.col("same"), _Rows.pos.col)
        .with_columns(
            _Links.i.col.shift().alias(_Links.previous.name),
            follows=pl.col("same") == pl.col("same").shift(),
            failed=_Rows.outcome.col.shift().is_in(UNSUCCESSFUL),
            signed_in=signs_in.shift(),
            pause=sent.col - pl.col("ended_ns").shift(),
        )
        .filter(
            "follows",
            pl.col("failed") | pl.col("signed_in"),
            # A call that was sent before the failure arrived is concurrent, not a retry.
            pl.col("pause").is_between(0, RETRY_WITHIN),
        )
    )
    yield _links(linked.filter("failed"), "retry")
    yield _links(linked.filter("signed_in"), "input_required")
