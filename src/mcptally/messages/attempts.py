"""Calls that belong together: one logical call in several requests.

An answer that asks for input and its continuation, a task and the requests about it, a probe of the
modern protocol and the handshake that follows its failure, and an agent trying the same again.
"""

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.tables.calls import FAILED

RETRY_WITHIN: Final = 10 * 60 * 10**9
"""Nanoseconds after a failed call in which the same call in the same session is a retry of it."""

_NEEDED: Final = (
    *("pos", "recording", "session", "client", "method", "arguments", "outcome"),
    *("tool", "prompt", "resource_uri"),
    *("ts_ns", "reply_ns", "cancelled_ns", "task", "task_id"),
    *("request_state", "reply_state", "input_responses"),
)


def chain(calls: pl.DataFrame) -> pl.DataFrame:
    """`attempt_of`, `attempt` and `attempt_why` of each call; alone, a call is its own first."""
    rows = calls.select(_NEEDED).with_row_index("i").sort("pos")
    links = pl.concat(
        [_continued(rows), _of_tasks(rows), _negotiated(rows), _retried(rows)]
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
    """The first call of each call's chain and how many links lead there, by pointer jumping."""
    root = np.arange(size)
    root[links.get_column("i").to_numpy()] = links.get_column("previous").to_numpy()
    depth = (root != np.arange(size)).astype(np.int64)
    while True:
        further = root[root]
        if (further == root).all():
            return root, depth
        depth += depth[root]
        root = further


def _links(frame: pl.DataFrame, why: str) -> pl.DataFrame:
    return frame.select(
        pl.col("i").cast(pl.UInt32), pl.col("previous").cast(pl.UInt32), why=pl.lit(why)
    ).filter(pl.col("i") != pl.col("previous"))


def _continued(rows: pl.DataFrame) -> pl.DataFrame:
    """Continuations of `input_required`: by the echoed state, else by answers for the same name."""
    asked = rows.filter(pl.col("outcome") == "input_required").with_columns(previous="i")
    answers = rows.filter(
        pl.col("request_state").is_not_null() | pl.col("input_responses").is_not_null()
    )
    by_state = answers.drop_nulls("request_state").join_asof(
        asked.select("pos", "session", "previous", request_state="reply_state").drop_nulls(),
        on="pos",
        by=["session", "request_state"],
        check_sortedness=False,
        allow_exact_matches=False,
    )
    about = pl.coalesce("tool", "prompt", "resource_uri", pl.lit("")).alias("about")
    by_name = answers.filter(pl.col("request_state").is_null()).with_columns(about)
    by_name = by_name.join_asof(
        asked.filter(pl.col("reply_state").is_null()).select(
            "pos", "session", "method", about, "previous"
        ),
        on="pos",
        by=["session", "method", "about"],
        check_sortedness=False,
        allow_exact_matches=False,
    )
    found = [part.drop_nulls("previous") for part in (by_state, by_name)]
    return pl.concat([_links(part, "input_required") for part in found])


def _of_tasks(rows: pl.DataFrame) -> pl.DataFrame:
    """Requests about a task, linked to the call that began it, which came before them."""
    began = rows.filter(pl.col("outcome") == "task").select("i", "pos", "recording", "task")
    about = rows.filter(pl.col("method").str.starts_with("tasks/")).drop_nulls("task_id")
    if not began.height or not about.height:
        return _links(rows.clear().with_columns(previous="i"), "task")
    ids = [_task_id(text) for text in began.get_column("task").to_list()]
    began = began.select(
        "recording", previous="i", begun="pos", task_id=pl.Series(ids, dtype=pl.String)
    ).drop_nulls()
    found = about.join(
        began.unique(["recording", "task_id"], keep="first", maintain_order=True),
        on=["recording", "task_id"],
    )
    # Where requests about tasks are answered with tasks, the links could go round in a ring.
    return _links(found.filter(pl.col("begun") < pl.col("pos")), "task")


def _task_id(text: str | None) -> str | None:
    try:
        task: Any = msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, RecursionError):
        return None
    value = task.get("taskId") if isinstance(task, dict) else None
    return value if isinstance(value, str) else None


def _negotiated(rows: pl.DataFrame) -> pl.DataFrame:
    """A handshake after `server/discover` failed: the fallback that the protocol describes."""
    probes = rows.filter(
        (pl.col("method") == "server/discover") & pl.col("outcome").is_in(FAILED)
    ).select("pos", "recording", "client", previous="i")
    handshakes = rows.filter(pl.col("method") == "initialize")
    linked = handshakes.join_asof(probes, on="pos", by="recording", check_sortedness=False)
    return _links(linked.drop_nulls("previous"), "negotiation")


def _retried(rows: pl.DataFrame) -> pl.DataFrame:
    """The same call (session, tool, arguments) soon after it had failed."""
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
            failed=pl.col("outcome").shift().is_in(FAILED),
            pause=pl.col("ts_ns") - pl.col("ended_ns").shift(),
        )
        .filter(
            "follows",
            "failed",
            # Sent before the failure was known, it is no retry but a concurrent call.
            pl.col("pause").is_between(0, RETRY_WITHIN),
        )
    )
    return _links(linked, "retry")
