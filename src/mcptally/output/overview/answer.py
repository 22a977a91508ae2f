"""Asks a store for what the overview prints, and writes the page."""

from pathlib import Path
from typing import Any

import polars as pl

from mcptally.analytics.store import Store, open_store, retry_if_replaced
from mcptally.output.html import report
from mcptally.output.html.headings import share_that_worked
from mcptally.output.html.priorities import KINDS
from mcptally.output.html.text import interval, moment, name, shown

_FAILED = ("business", "tool_failures", "infrastructure", "ambiguous")
_UNFINISHED = ("cancelled", "input_required", "tasks")


def answer_of(store: Path, page: Path, *, most: int) -> dict[str, Any]:
    """The numbers and texts of the overview of a store; writes the report to `page`."""
    opened = open_store(store)
    page.unlink(missing_ok=True)
    report(opened, page)
    return retry_if_replaced([opened], lambda: _answer(opened, most), consistent=True)


def _answer(store: Store, most: int) -> dict[str, Any]:
    servers = store.ask("server_scores").pl()
    names = ("calls", "ok", "sessions", "tools", *_FAILED, *_UNFINISHED)
    sums = servers.select(pl.col(name).sum() for name in names).row(0, named=True)
    counts = {name: int(value or 0) for name, value in sums.items()}
    problems = store.ask("priorities").pl()
    return {
        "servers": servers.height,
        **{name: counts[name] for name in ("calls", "ok", "sessions", "tools")},
        "first": moment(servers.get_column("first_call").min()),
        "last": moment(servers.get_column("last_call").max()),
        "headline": share_that_worked(counts["calls"], counts["ok"]),
        "rest": {
            "caller": counts["business"],
            "tool": counts["tool_failures"],
            "network or upstream": counts["infrastructure"],
            "unknown": counts["ambiguous"],
            "unfinished": sum(counts[name] for name in _UNFINISHED),
        },
        "problems": problems.height,
        "findings": [_finding(row) for row in problems.head(most).to_dicts()],
    }


def _finding(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": KINDS[row["kind"]],
        "server": name(row["server"]),
        "tool": None if row["tool"] is None else name(row["tool"]),
        "affected": row["affected"],
        "calls": row["calls"],
        "interval": None
        if row["rate_low"] is None
        else interval(row["rate_low"], row["rate_high"]),
        "fault": row["fault"],
        "certainty": row["certainty"],
        "since": None if row["since"] is None else moment(row["since"]),
        "insufficient_data": row["insufficient_data"],
        "message": None if row["message"] is None else shown(row["message"]),
        "call_id": row["call_id"],
    }
