"""Builds stores from calls that a test lists."""

import functools
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from mcptally.analytics.store import Store, open_store
from mcptally.messages.server_lives import failed_requests
from mcptally.pipeline.failure_kinds import failure_kind
from mcptally.pipeline.usage import usage
from mcptally.store.parts import write_part
from mcptally.store.work_folder import Provenance, create_work_folder, publish, remove_unlisted
from mcptally.tables.calls import Calls
from mcptally.tables.findings import Findings
from mcptally.tables.recordings import Recordings
from mcptally.tables.tools import Tools
from mcptally.tables.usage import Usage

BEGAN = datetime(2026, 3, 2, tzinfo=UTC)

FAILED = {"outcome": "tool_error", "verdict": "tool_failure"}
REFUSED = {"outcome": "tool_error", "verdict": "business"}
NO_NETWORK = {"outcome": "tool_error", "verdict": "infrastructure"}
UNCLEAR = {"outcome": "protocol_error", "verdict": "ambiguous"}
OK = {"outcome": "ok"}


def call(session: Any, tool: str | None = "t", **fields: Any) -> dict[str, Any]:
    about = {
        "server": "s",
        "tool": tool,
        "session": str(session),
        "recording": str(session),
        "method": "tools/call",
        "dir": "c2s",
        "outcome": "ok",
        "requested_at": BEGAN,
        "file": f"{session}.jsonl",
        "line": 1,
    }
    return about | fields


def sessions(counts: Iterable[tuple[int, int]], tool: str = "t", **fields: Any) -> list[dict]:
    """Return the calls of sessions, each given as (failures, calls)."""
    return [
        call(number, tool, **(FAILED if i < failed else OK), **fields)
        for number, (failed, calls) in enumerate(counts)
        for i in range(calls)
    ]


def days(start: int, counts: Iterable[tuple[int, int]], **fields: Any) -> list[dict]:
    """Return the calls of one day, in sessions of their own."""
    at = BEGAN + timedelta(days=start)
    return [
        row | {"session": f"{start}/{row['session']}", "requested_at": at}
        for row in sessions(counts, **fields)
    ]


def build(
    folder: Path,
    calls: Iterable[Mapping[str, Any]],
    tools: Iterable[Mapping[str, Any]] = (),
    recordings: Iterable[Mapping[str, Any]] = (),
    findings: Iterable[Mapping[str, Any]] = (),
) -> Store:
    rows = [
        {"call_id": f"{number:016x}", "seq": number, "index": 0, "attempt_of": f"{number:016x}"}
        | dict(row)
        for number, row in enumerate(calls)
    ]
    work = create_work_folder(folder)
    given = {Tools: list(tools), Recordings: list(recordings), Findings: list(findings)}
    for table, data in {Calls: rows, **given}.items():
        given_columns = set().union(*data)
        schema = {name: kind for name, kind in table.schema().items() if name in given_columns}
        frame = pl.DataFrame(data, schema=schema) if data else pl.DataFrame()
        if table is Calls:
            frame = Calls.frame(frame)
            frame = frame.with_columns(failure_kind(frame))
            write_part(work, Usage, "000000", usage(frame))
            requests = failed_requests(frame).collect()
        elif table is Recordings and data:
            frame = frame.join(requests, on="recording", how="left")
        write_part(work, table, "000000", frame)
    publish(folder, work, sources=[], rows={}, made=Provenance())
    remove_unlisted(folder)
    return open_store(folder)


def definition(tool: str, *, server: str = "s", **fields: Any) -> dict[str, Any]:
    text = f"{server}{tool}{sorted(fields.items())}"
    about = {
        "server": server,
        "tool": tool,
        "definition": hashlib.sha256(text.encode()).hexdigest()[:16],
        "first_seen": BEGAN,
        "last_seen": BEGAN,
        "description": f"What {tool} is for.",
        "input_schema": '{"type":"object"}',
        "complete": True,
        "bytes": 400,
        "tokens": 100,
    }
    return about | fields


class Servers:
    """The cases of a module in one store: each case is the calls to its own server.

    Asking a question takes much longer than reading a hundred thousand rows, so all cases share a
    store. Use this only where the answer about a server does not depend on other servers.
    """

    def __init__(self) -> None:
        self._tables: list[list[dict[str, Any]]] = [[], [], []]
        self._added = 0

    def add(
        self,
        calls: Iterable[Mapping[str, Any]],
        tools: Iterable[Mapping[str, Any]] = (),
        recordings: Iterable[Mapping[str, Any]] = (),
    ) -> str:
        """Add a case, whose rows name the server `s`; return the label that the server gets.

        All labels, sessions, recordings and ids get the number of the case before their name.
        """
        self._added += 1
        own = ("server", "server_name", "session", "recording", "file", "call_id", "attempt_of")
        for table, rows in zip(self._tables, (calls, tools, recordings), strict=True):
            for row in rows:
                named = {name: row[name] for name in own if row.get(name) is not None}
                table.append({**row, **{n: f"{self._added}-{v}" for n, v in named.items()}})
        return f"{self._added}-s"

    def build(self, folder: Path) -> "Answers":
        """Return the answers of a store with all cases."""
        return Answers(build(folder, *self._tables))


class Answers:
    """The answers of a store, each question with its filters asked once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._rows = functools.cache(self._ask)

    def _ask(self, question: str, **filters: Any) -> dict[str | None, list[dict[str, Any]]]:
        found = defaultdict(list)
        for row in self.store.ask(question, **filters).pl().to_dicts():
            found[row["server"]].append(row)
        return dict(found)

    def of(self, server: str | None, question: str, **filters: Any) -> list[dict[str, Any]]:
        """Return the rows about a server, in the order of the answer."""
        return self._rows(question, **filters).get(server, [])
