"""What surrounds a call: how its recording ended, what else failed then, what its tool says else.

Evidence for the judge beyond the reply itself. What one recording tells is made in its partition;
what other recordings tell is counted there (`minutes`, `forms`) and summed over the archive.
"""

import signal
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.tables.joins import left_join_columns
from mcptally.verdict import hidden_errors

MINUTE: Final = 60 * 10**9
"""Nanoseconds; calls of the same minute and its neighbours count as "at that time"."""

ENOUGH: Final = 5
"""Calls of other tools at that time from which their share of failures means something."""

_FAILED: Final = ("tool_error", "protocol_error", "timeout", "no_response")
"""Outcomes that count as a failure here: what is known before anything is judged, and no wish of
the client's. (`schema.FAILED` has those that the judge finds, and what was cancelled.)"""

_MINUTES: Final = ("recording", "server", "minute", "tool")


def with_end(calls: pl.DataFrame, closes: pl.DataFrame) -> pl.DataFrame:
    """`exit_code`, `signal` and `closed` of calls that were in flight when their recording ended.

    A call was in flight when nothing that its side asked after it was answered. For all others
    the three are null: how a recording ended does not explain them.
    """
    ends = (
        closes.sort("recording", "seq")
        .group_by("recording", maintain_order=True)
        .agg(pl.col("exit_code").last(), pl.col("signal").last())
    )
    numbers = {text: _number(text) for text in ends.get_column("signal").drop_nulls().unique()}
    ends = ends.with_columns(
        signal=pl.col("signal").replace_strict(numbers, default=None, return_dtype=pl.Int64),
        closed=pl.lit(value=True),
    )
    answered = pl.col("pos").filter(pl.col("reply").is_not_null()).max().over("session", "dir")
    pending = pl.col("reply").is_null() & (pl.col("pos") > answered.fill_null(-1))
    told = ["exit_code", "signal", "closed"]
    return left_join_columns(calls, ends, "recording").with_columns(
        pl.when(pending).then(pl.col(told))
    )


def _number(text: str) -> int | None:
    """The number of a signal, which transcripts give as a number or a name."""
    value: Any = msgspec.json.decode(text)
    if isinstance(value, str):
        return signal.Signals[value] if value in signal.Signals.__members__ else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def minutes(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls of each tool and how many failed, by recording, server and minute."""
    return (
        calls.filter((pl.col("dir") == "c2s") & pl.col("tool").is_not_null())
        .group_by("recording", "server", "tool", minute=pl.col("ts_ns") // MINUTE)
        .agg(
            calls=pl.len().cast(pl.Int64),
            failed=pl.col("outcome").is_in(_FAILED).sum().cast(pl.Int64),
        )
        .select(*_MINUTES, "calls", "failed")
    )


def working(at: pl.DataFrame, counted: pl.DataFrame | None = None) -> pl.DataFrame:
    """`minutes` of tools that ever work, by `counted` (`calls` and `failed` of more than `at`).

    One that never does (that does not exist, say) tells nothing about an outage.
    """
    every = at if counted is None else counted
    works = every.group_by("server", "tool").agg(pl.col("calls", "failed").sum())
    works = works.filter(pl.col("failed") < pl.col("calls"))
    return at.join(works, on=["server", "tool"], how="semi", nulls_equal=True)


def forms(calls: pl.DataFrame) -> pl.DataFrame:
    """Results of each tool in each recording, and how many of them are JSON."""
    return hidden_errors.forms(
        calls.filter((pl.col("outcome") == "ok") & pl.col("tool").is_not_null()).with_columns(
            text="first_text"
        ),
        "recording",
    )


def add_evidence(calls: pl.DataFrame, at: pl.DataFrame, usual: pl.DataFrame) -> pl.DataFrame:
    """Calls with `concurrent_failure_share`, and the usual form of their tool's results.

    Args:
        calls: the calls of a partition.
        at: `minutes` of the whole archive, as far as they are near a call: of tools that are
            `working`, summed or not.
        usual: `forms` of the whole archive, summed or not.
    """
    keys = ["server", "minute"]
    counts = [pl.col("calls").sum(), pl.col("failed").sum()]
    near = pl.concat([at.with_columns(pl.col("minute") + step) for step in (-1, 0, 1)])
    every = near.group_by(keys).agg(counts)
    own = near.group_by([*keys, "tool"]).agg(
        own_calls=pl.col("calls").sum(), own_failed=pl.col("failed").sum()
    )
    others = pl.col("calls") - pl.col("own_calls").fill_null(0)
    share = (pl.col("failed") - pl.col("own_failed").fill_null(0)) / others
    calls = calls.with_columns(minute=pl.col("ts_ns") // MINUTE)
    calls = left_join_columns(calls, every, *keys, nulls=True)
    calls = left_join_columns(calls, own, *keys, "tool", nulls=True)
    calls = calls.with_columns(concurrent_failure_share=pl.when(others >= ENOUGH).then(share)).drop(
        "minute", "calls", "failed", "own_calls", "own_failed"
    )
    results = usual.group_by("server", "tool").agg(
        results_seen=pl.col("seen").sum(), results_json=pl.col("json").sum()
    )
    return left_join_columns(calls, results, "server", "tool", nulls=True)
