"""Progress notifications against the calls whose token they carry."""

from collections.abc import Iterator

import polars as pl

from mcptally.protocol.view import Traffic
from mcptally.rules.findings import findings_of
from mcptally.tables.formatting import formatted


def find(traffic: Traffic) -> Iterator[pl.DataFrame]:
    """Findings about progress."""
    calls = traffic.calls
    yield from _tokens(calls)
    other = pl.when(pl.col("dir") == "c2s").then(pl.lit("s2c")).otherwise(pl.lit("c2s"))
    said = (
        traffic.messages.filter(pl.col("method") == "notifications/progress", ~pl.col("replay"))
        .drop("call_id")
        .join(
            traffic.events.asks.select("row", "progress", pl.col("progress_token").alias("token")),
            on="row",
            maintain_order="left",
        )
        .drop_nulls("token")
        .with_columns(asker=other)
        .sort("pos")
    )
    if not said.height:
        return
    asked = calls.select(
        "pos",
        "session",
        "call_id",
        "reply",
        pl.col("meta_progress_token").alias("token"),
        asker="dir",
    ).drop_nulls("token")
    met = said.join_asof(
        asked.sort("pos"),
        on="pos",
        by=["session", "asker", "token"],
        check_sortedness=False,
    )
    # The task of a call keeps its token after the reply that began the task (2025-11-25).
    tasks = calls.filter(pl.col("outcome") == "task").select("call_id")
    known = pl.col("call_id").is_not_null()
    yield findings_of(
        "protocol.progress_without_token",
        met.filter(~known),
        "no request has this progress token",
        evidence="token",
        path="/params/progressToken",
    )
    yield findings_of(
        "protocol.progress_after_reply",
        met.filter(known, pl.col("reply") < pl.col("pos")).join(tasks, on="call_id", how="anti"),
        "the call is answered already",
        path="/params/progressToken",
    )
    steps = met.filter(known).with_columns(value=pl.col("progress").cast(pl.Float64, strict=False))
    yield findings_of(
        "protocol.progress_backwards",
        steps.with_columns(before=pl.col("value").shift().over("call_id")).filter(
            pl.col("value") <= pl.col("before")
        ),
        formatted("progress is {} and was {}", "value", "before"),
        evidence="progress",
        path="/params/progress",
    )


def _tokens(calls: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Progress tokens that an earlier call, still waiting, has too."""
    same = ["session", "dir", "meta_progress_token"]
    rows = (
        calls.filter(pl.col("meta_progress_token").is_not_null())
        .sort("pos")
        .filter(pl.struct(same).is_duplicated())
        .with_columns(
            before=pl.col("pos").shift().over(same),
            answered=pl.col("reply").shift().over(same),
            gone=(pl.col("cancelled_ns").shift().over(same) < pl.col("ts_ns")).fill_null(
                value=False
            ),
        )
        .filter(pl.col("before").is_not_null(), ~pl.col("gone"))
    )
    yield findings_of(
        "protocol.progress_token_reused",
        rows.filter(pl.col("answered").is_null() | (pl.col("answered") > pl.col("pos"))),
        "the progress token of a call that is still waiting",
        evidence="meta_progress_token",
        path="/params/_meta/progressToken",
    )
