"""Checks progress notifications against the calls with the same progress token."""

from collections.abc import Iterator

import polars as pl

from mcptally.protocol.traffic import RepeatedCalls, Traffic, TrafficCalls, TrafficMessages
from mcptally.rules.findings import make_findings
from mcptally.tables.formatting import formatted
from mcptally.tables.queries import run_query


def check_progress(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Yield findings about progress notifications and progress tokens."""
    calls = traffic.calls
    yield from _check_tokens(calls)
    other_side = (
        pl.when(TrafficMessages.dir.col == "c2s").then(pl.lit("s2c")).otherwise(pl.lit("c2s"))
    )
    notifications = (
        traffic.messages.lazy()
        .filter(TrafficMessages.method.col == "notifications/progress", ~TrafficMessages.replay.col)
        .drop("call_id")
        .join(
            traffic.events.asks.lazy().select(
                "row", "progress", pl.col("progress_token").alias("token")
            ),
            on="row",
            maintain_order="left",
        )
        .drop_nulls("token")
        .with_columns(caller=other_side)
        .sort("pos")
        .pipe(run_query)
    )
    if not notifications.height:
        return
    calls_with_token = (
        calls.lazy()
        .select(
            *("pos", "session", "call_id", "reply"),
            TrafficCalls.meta_progress_token.col.alias("token"),
            caller="dir",
        )
        .drop_nulls("token")
        .sort("pos")
    )
    matched = (
        notifications.lazy()
        .join_asof(
            calls_with_token, on="pos", by=["session", "caller", "token"], check_sortedness=False
        )
        .pipe(run_query)
        .lazy()
    )
    # A task keeps the token of its call after the reply that created the task (2025-11-25).
    tasks = calls.lazy().filter(TrafficCalls.outcome.col == "task").select("call_id")
    known = TrafficCalls.call_id.col.is_not_null()
    yield make_findings(
        "protocol.progress_without_token",
        matched.filter(~known),
        "no request has this progress token",
        evidence="token",
        path="/params/progressToken",
    )
    yield make_findings(
        "protocol.progress_after_reply",
        matched.filter(known, TrafficCalls.reply.col < TrafficMessages.pos.col).join(
            tasks, on="call_id", how="anti"
        ),
        "the call was already answered",
        path="/params/progressToken",
    )
    steps = matched.filter(known).with_columns(
        value=pl.col("progress").cast(pl.Float64, strict=False)
    )
    yield make_findings(
        "protocol.progress_backwards",
        steps.with_columns(before=pl.col("value").shift().over("call_id")).filter(
            pl.col("value") <= pl.col("before")
        ),
        formatted("progress is {}, it was {} before", "value", "before"),
        evidence="progress",
        path="/params/progress",
    )


def _check_tokens(calls: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Find calls with the progress token of an earlier call that is still unanswered."""
    rows = RepeatedCalls.of(calls, RepeatedCalls.meta_progress_token, pl.lit(value=True)).lazy()
    waiting = RepeatedCalls.answered.col.is_null() | (
        RepeatedCalls.answered.col > RepeatedCalls.pos.col
    )
    yield make_findings(
        "protocol.progress_token_reused",
        rows.filter(~RepeatedCalls.cancelled.col, waiting),
        "the progress token of a call that is still waiting for its reply",
        evidence="meta_progress_token",
        path="/params/_meta/progressToken",
    )
