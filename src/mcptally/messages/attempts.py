"""Link the requests that make up one logical call: the attempts of a chain.

Four kinds of link: a reply that requires input and the request that provides it; a task and the
requests about it; a failed `server/discover` and the handshake that follows; a failed call and its
retry.
"""

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.tables.calls import FAILED_OUTCOMES

RETRY_WITHIN: Final = 10 * 60 * 10**9
"""Nanoseconds after a failed call within which the same call in the same session is its retry."""

_COLUMNS: Final = (
    *("pos", "recording", "session", "client", "method", "arguments", "outcome"),
    *("tool", "prompt", "resource_uri"),
    *("ts_ns", "reply_ns", "cancelled_ns", "task", "task_id"),
    *("request_state", "reply_state", "input_responses"),
)


def link_attempts(calls: pl.DataFrame) -> pl.DataFrame:
    """Add `attempt_of`, `attempt` and `attempt_why`; an unlinked call is attempt 1 of itself."""
    rows = calls.select(_COLUMNS).with_row_index("i").sort("pos")
    links = pl.concat(
        [_input_links(rows), _task_links(rows), _negotiation_links(rows), _retry_links(rows)]
    ).unique("i", keep="first", maintain_order=True)
    root, depth = _resolve(calls.height, links)
    why = pl.DataFrame({"i": pl.Series(range(calls.height), dtype=pl.UInt32)}).join(
        links.select("i", "why"), on="i", how="left", maintain_order="left"
    )
    return calls.with_columns(
        attempt_of=calls.get_column("call_id").gather(root),
        attempt=pl.Series(depth + 1, dtype=pl.UInt32),
        attempt_why=why.get_column("why"),
    )


def _resolve(size: int, links: pl.DataFrame) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return each call's first call and the number of links to it, by pointer jumping."""
    root = np.arange(size)
    root[links.get_column("i").to_numpy()] = links.get_column("previous").to_numpy()
    depth = (root != np.arange(size)).astype(np.int64)
    while True:
        next_root = root[root]
        if (next_root == root).all():
            return root, depth
        depth += depth[root]
        root = next_root


def _links(frame: pl.DataFrame, why: str) -> pl.DataFrame:
    """Return links as rows of call `i`, `previous` call and `why`, without links to itself."""
    return frame.select(
        pl.col("i").cast(pl.UInt32), pl.col("previous").cast(pl.UInt32), why=pl.lit(why)
    ).filter(pl.col("i") != pl.col("previous"))


def _input_links(rows: pl.DataFrame) -> pl.DataFrame:
    """Link requests that provide input: by the echoed state, else by tool, prompt or resource."""
    waiting = rows.filter(pl.col("outcome") == "input_required").with_columns(previous="i")
    answers = rows.filter(
        pl.col("request_state").is_not_null() | pl.col("input_responses").is_not_null()
    )
    by_state = answers.drop_nulls("request_state").join_asof(
        waiting.select("pos", "session", "previous", request_state="reply_state").drop_nulls(),
        on="pos",
        by=["session", "request_state"],
        check_sortedness=False,
        allow_exact_matches=False,
    )
    target = pl.coalesce("tool", "prompt", "resource_uri", pl.lit("")).alias("target")
    by_name = answers.filter(pl.col("request_state").is_null()).with_columns(target)
    by_name = by_name.join_asof(
        waiting.filter(pl.col("reply_state").is_null()).select(
            "pos", "session", "method", target, "previous"
        ),
        on="pos",
        by=["session", "method", "target"],
        check_sortedness=False,
        allow_exact_matches=False,
    )
    found = [part.drop_nulls("previous") for part in (by_state, by_name)]
    return pl.concat([_links(part, "input_required") for part in found])


def _task_links(rows: pl.DataFrame) -> pl.DataFrame:
    """Link requests about a task to the earlier call that started it."""
    started = rows.filter(pl.col("outcome") == "task").select("i", "pos", "recording", "task")
    about = rows.filter(pl.col("method").str.starts_with("tasks/")).drop_nulls("task_id")
    if not started.height or not about.height:
        return _links(rows.clear().with_columns(previous="i"), "task")
    ids = [_task_id(text) for text in started.get_column("task").to_list()]
    started = started.select(
        "recording", previous="i", started_pos="pos", task_id=pl.Series(ids, dtype=pl.String)
    ).drop_nulls()
    found = about.join(
        started.unique(["recording", "task_id"], keep="first", maintain_order=True),
        on=["recording", "task_id"],
    )
    # Replies to requests about tasks may be tasks: only links to earlier calls cannot form a cycle.
    return _links(found.filter(pl.col("started_pos") < pl.col("pos")), "task")


def _task_id(text: str | None) -> str | None:
    try:
        task: Any = msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, RecursionError):
        return None
    value = task.get("taskId") if isinstance(task, dict) else None
    return value if isinstance(value, str) else None


def _negotiation_links(rows: pl.DataFrame) -> pl.DataFrame:
    """Link a handshake to the failed `server/discover` before it: the fallback in the protocol."""
    probes = rows.filter(
        (pl.col("method") == "server/discover") & pl.col("outcome").is_in(FAILED_OUTCOMES)
    ).select("pos", "recording", "client", previous="i")
    handshakes = rows.filter(pl.col("method") == "initialize")
    linked = handshakes.join_asof(probes, on="pos", by="recording", check_sortedness=False)
    return _links(linked.drop_nulls("previous"), "negotiation")


def _retry_links(rows: pl.DataFrame) -> pl.DataFrame:
    """Link a call to the failed call with the same session, tool and arguments before it."""
    tried = rows.filter((pl.col("method") == "tools/call") & pl.col("tool").is_not_null())
    group = [pl.col("session"), pl.col("tool"), pl.coalesce("arguments", pl.lit("{}"))]
    linked = (
        tried.select(
            "i",
            "pos",
            "outcome",
            "ts_ns",
            ended_ns=pl.coalesce("reply_ns", "cancelled_ns", "ts_ns"),
            same=pl.struct(*group).hash(),
        )
        .sort("same", "pos")
        .with_columns(
            previous=pl.col("i").shift(),
            follows=pl.col("same") == pl.col("same").shift(),
            failed=pl.col("outcome").shift().is_in(FAILED_OUTCOMES),
            pause=pl.col("ts_ns") - pl.col("ended_ns").shift(),
        )
        .filter(
            "follows",
            "failed",
            # A call sent before the failure was known is concurrent, not a retry.
            pl.col("pause").is_between(0, RETRY_WITHIN),
        )
    )
    return _links(linked, "retry")
