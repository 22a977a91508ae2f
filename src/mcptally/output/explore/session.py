"""Builds a session's page: its calls and notifications in order, as a waterfall."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mcptally.errors import QueryError
from mcptally.output.explore.addresses import Links
from mcptally.output.explore.answers import Answers
from mcptally.output.explore.page import Page, Section
from mcptally.output.html.text import duration, name, shown
from mcptally.plural import count
from mcptally.tables.values import cell

CALLS: Final = 200
"""Maximum number of calls on a page."""
WIDTH: Final = 300
"""Width of the waterfall in SVG units."""
_IDLE: Final = 0.04
"""Maximum width of a period without open calls, as a share of the total width of periods with open
calls."""

_COLUMNS: Final = """
    call_id, dir, method, tool, server, coalesce(tool, prompt, resource_uri) AS target, outcome,
    verdict, requested_at, coalesce(answered_at, requested_at) AS ended_at, latency_ms,
    left(arguments, 300) AS arguments, left(error_text, 300) AS error_text, progress_count,
    row_number() OVER (ORDER BY requested_at NULLS LAST, recording, seq, "index") AS place
"""
_ABOUT: Final = """
SELECT count(*) AS calls, count(*) FILTER (_failed(outcome)) AS failed,
    min(requested_at) AS first, max(requested_at) AS last, any_value(server) AS server,
    any_value(client) AS client, any_value(client_version) AS client_version,
    any_value(protocol_version) AS protocol_version, any_value(transport) AS transport,
    any_value(recording) AS recording
FROM calls WHERE session = ?
"""
_PLACE: Final = f"""
SELECT place FROM (SELECT {_COLUMNS} FROM calls WHERE session = ?) WHERE call_id = ?
"""
_CALLS: Final = f"""
SELECT {_COLUMNS} FROM calls WHERE session = ?
QUALIFY place BETWEEN ? AND ? ORDER BY place
"""
_NOTIFICATIONS: Final = """
SELECT dir, method, "at" AS requested_at, call_id, file, line FROM messages
WHERE session = ? AND kind = 'notification' AND "at" BETWEEN ? AND ?
ORDER BY "at", recording, seq, "index" LIMIT 2000
"""
_ANY: Final = "SELECT 1 FROM messages WHERE session = ? LIMIT 1"


def page(answers: Answers, links: Links, session: str, at: str, number: int) -> Page:
    """Return a session's page.

    Args:
        answers: the answers of the store.
        links: the addresses.
        session: the session's id.
        at: a call's id; if `number` is 0, the page with this call is shown.
        number: page number, counted from 1; 0 means the page with the call or, without a call, the
            first page.

    Raises:
        QueryError: there is no such session.
    """
    row = answers.sql(_ABOUT, session).row(0, named=True)
    if not row["calls"] and answers.sql(_ANY, session).is_empty():
        raise QueryError(f"no session has the id {session!r}")
    if not number and at:
        place = answers.sql(_PLACE, session, at)
        number = 1 if place.is_empty() else -(-int(place["place"][0]) // CALLS)
    pages = max(1, -(-row["calls"] // CALLS))
    number = min(max(1, number), pages)
    crumbs = [] if row["server"] is None else [(name(row["server"]), links.server(row["server"]))]
    return Page(
        "session",
        shown(session, 60),
        about="session",
        crumbs=crumbs,
        head={
            "row": row,
            "first": cell("first", row["first"]),
            "session": session,
            "calls": count(row["calls"], "call"),
        },
        sections=[
            Section(
                "turns",
                "Calls and notifications in order",
                lambda: {
                    "turns": _turns(answers, session, (number - 1) * CALLS + 1, number * CALLS),
                    "session": session,
                    "number": number,
                    "pages": pages,
                    "at": at,
                },
            )
        ],
    )


def around(answers: Answers, session: str, call: str, beside: int) -> list[dict[str, Any]]:
    """Return the calls and notifications around a call, with their positions in a waterfall."""
    place = answers.sql(_PLACE, session, call)
    if place.is_empty():
        return []
    middle = int(place["place"][0])
    return _turns(answers, session, middle - beside, middle + beside)


def _turns(answers: Answers, session: str, first: int, last: int) -> list[dict[str, Any]]:
    """Return calls `first` to `last` and the notifications between them, in chronological order."""
    calls = answers.sql(_CALLS, session, first, last).to_dicts()
    times = [row["requested_at"] for row in calls if row["requested_at"] is not None]
    turns = [{"kind": "call", **row} for row in calls]
    if times:
        end = max(row["ended_at"] for row in calls if row["ended_at"] is not None)
        found = answers.sql(_NOTIFICATIONS, session, min(times), end).to_dicts()
        turns += [{"kind": "notification", "ended_at": row["requested_at"], **row} for row in found]
    turns.sort(key=lambda turn: (turn["requested_at"] is None, turn["requested_at"] or 0))
    axis = Axis(calls)
    for turn in turns:
        start = axis.x(turn["requested_at"])
        end = axis.x(turn["ended_at"])
        turn["after"] = _after(min(times, default=None), turn["requested_at"])
        turn["bar"] = None if start is None or end is None else (start, max(1.5, end - start))
    return turns


class Axis:
    """Maps times to x coordinates in a waterfall, which shortens long periods without open calls.

    Args:
        calls: rows with `requested_at` and `ended_at`.
    """

    def __init__(self, calls: Sequence[Mapping[str, Any]]) -> None:
        spans = sorted(
            (row["requested_at"], max(row["requested_at"], row["ended_at"]))
            for row in calls
            if row["requested_at"] is not None and row["ended_at"] is not None
        )
        busy = _merged(spans)
        self._pieces: list[tuple[datetime.datetime, datetime.datetime, float, float]] = []
        total = sum((end - start).total_seconds() for start, end in busy) or 1.0
        x, before = 0.0, None
        for start, end in busy:
            if before is not None:
                idle = min((start - before).total_seconds(), _IDLE * total)
                self._pieces.append((before, start, x, x + idle))
                x += idle
            self._pieces.append((start, end, x, x + (end - start).total_seconds()))
            x, before = x + (end - start).total_seconds(), end
        self._scale = (WIDTH - 2) / (x or 1.0)

    def x(self, at: datetime.datetime | None) -> float | None:
        """Return the x coordinate of a time; None if the time is unknown."""
        if at is None or not self._pieces:
            return None
        for start, end, low, high in self._pieces:
            if at <= end:
                length = (end - start).total_seconds()
                part = (at - start).total_seconds() / length if length else 0.0
                return round(self._scale * (low + (high - low) * min(1, max(0, part))), 1)
        return round(self._scale * self._pieces[-1][3], 1)


def _merged(
    spans: Iterable[tuple[datetime.datetime, datetime.datetime]],
) -> list[tuple[datetime.datetime, datetime.datetime]]:
    """Merge overlapping spans; the spans must be sorted by start."""
    found: list[tuple[datetime.datetime, datetime.datetime]] = []
    for start, end in spans:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _after(first: datetime.datetime | None, at: datetime.datetime | None) -> str:
    """Return the time since the page's first call, such as `+1.2 s`."""
    if first is None or at is None:
        return ""
    milliseconds = (at - first).total_seconds() * 1e3
    return f"{'-' if milliseconds < 0 else '+'}{duration(abs(milliseconds))}"
