"""Defines the filters for questions: server, tool, client, model, time, minimum number of calls.

Time, client and model select *calls*: an answer is computed from these calls only. Server and tool
select *rows* of the answer, so that a tool's scores are the same as without the filter; if the
answer has no column for the server or the tool, the two filters also select calls. An answer that
compares clients (`COMPARED`) is computed from all clients' calls, so client and model select rows
of the answer.
"""

import datetime
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from mcptally.errors import UsageError
from mcptally.tables.all_tables import TABLES
from mcptally.tables.calls import Calls
from mcptally.tables.findings import Findings
from mcptally.tables.messages import Messages
from mcptally.tables.recordings import Recordings
from mcptally.tables.tools import Tools

Moment: TypeAlias = datetime.datetime | datetime.date | str
"""A point in time: a datetime, a date, or text that `parse_time` accepts."""

_AGO: Final = re.compile(r"(\d+)\s*([smhdw])", re.ASCII)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Filters for a question; None means no filter.

    Attributes:
        server: a server's label.
        tool: a tool's name.
        since: only calls made at or after this time.
        until: only calls made before this time.
        client: only calls by a client that reports this name.
        model: only calls requested by this language model.
        min_calls: only rows with at least this many calls.
    """

    server: str | None = None
    tool: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    client: str | None = None
    model: str | None = None
    min_calls: int | None = None

    def given(self) -> dict[str, str | int | datetime.datetime]:
        """Return the values of the filters that are set, keyed by filter name, with times in UTC.

        Raises:
            UsageError: a time cannot be parsed, or `until` is not after `since`.
        """
        found = {
            name: parse_time(value, name) if name in {"since", "until"} else value
            for name, value in msgspec.structs.asdict(self).items()
            if value is not None
        }
        if "since" in found and "until" in found and found["since"] >= found["until"]:
            raise UsageError(
                f"until {self.until} is not after since {self.since}, so no call can match"
            )
        return found


def parse_time(value: Moment, name: str = "time") -> datetime.datetime:
    """Parse a time. The default time zone is UTC, and a date means midnight.

    Text is ISO 8601 (`2026-11-21`, `2026-11-21T14:30`, `…+02:00`) or an age (`90m`, `24h`, `7d`,
    `2w`).

    Raises:
        UsageError: the text has neither form.
    """
    utc = datetime.UTC
    if isinstance(value, str):
        if ago := _AGO.fullmatch(value.strip()):
            try:
                back = datetime.timedelta(**{_UNITS[ago[2]]: int(ago[1])})
                return datetime.datetime.now(utc) - back
            except OverflowError:
                raise UsageError(
                    f"{name}: {value!r} is before the first date that can be stored"
                ) from None
        try:
            value = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            raise UsageError(
                f"{name}: {value!r} is not a time; write 2026-11-21, 2026-11-21T14:30 (UTC), or an "
                "age: 90m, 24h, 7d"
            ) from None
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day, tzinfo=utc)
    return value.replace(tzinfo=utc) if value.tzinfo is None else value.astimezone(utc)


CALL_FILTERS: Final = frozenset({"server", "tool", "since", "until", "client", "model"})
"""Names of the filters that can select calls."""

COMPARED: Final[Mapping[str, Collection[str]]] = {"client_mistakes": {"client", "model"}}
"""Maps questions whose rows are compared with each other to the filters that select rows, not
calls."""

_COUNTED_CALL: Final = "call_id IN (SELECT call_id FROM calls)"
_COUNTED_PLACE: Final = (
    f"({_COUNTED_CALL} OR call_id IS NULL AND "
    "(recording, seq, coalesce(index, 0)) IN (SELECT (recording, seq, index) FROM messages))"
)
_COUNTED_SESSION: Final = "session IN (SELECT session FROM calls)"
_COUNTED_RECORDING: Final = "recording IN (SELECT recording FROM recordings)"


def _equal(*names: str) -> dict[str, str]:
    """Map each filter to the condition that the column of this name has the filter's value."""
    return {name: f"{name} = getvariable('{name}')" for name in names}


def _within(first: str, last: str) -> dict[str, str]:
    """Map `since` and `until` to conditions for rows that extend from one column to another."""
    return {"since": f"{last} >= getvariable('since')", "until": f"{first} < getvariable('until')"}


_PREDICATES: Final[Mapping[str, Mapping[str, str]]] = {
    Calls.name: {
        **_equal("server", "tool", "client", "model"),
        **_within("requested_at", "requested_at"),
    },
    Recordings.name: {
        **_equal("server"),
        **dict.fromkeys(("tool", "client", "model"), "recording IN (SELECT recording FROM calls)"),
        **_within("opened_at", "ended_at"),
    },
    Messages.name: {
        "server": _COUNTED_RECORDING,
        "tool": _COUNTED_CALL,
        **dict.fromkeys(("client", "model"), _COUNTED_SESSION),
        **_within('"at"', '"at"'),
    },
    Findings.name: {
        **_equal("server", "tool"),
        **dict.fromkeys(("client", "model", "since", "until"), _COUNTED_PLACE),
    },
    # The table `tools` does not record who requested a listing, so `client` and `model` do not
    # restrict it.
    Tools.name: {**_equal("server", "tool"), **_within("first_seen", "last_seen")},
}
"""Maps each table and each filter to an SQL condition for the table's rows.

Filter values are DuckDB variables. A condition may refer to tables above it in this list, which are
then filtered views."""

_BY_COLUMN: Final = {
    "call_id": _COUNTED_CALL,
    "session": _COUNTED_SESSION,
    "recording": _COUNTED_RECORDING,
}
"""Maps columns to SQL conditions for tables that are not in `_PREDICATES`. The first of these
columns that a table has determines its condition."""

ORDER: Final = (
    *_PREDICATES,
    *(table.name for table in TABLES if table.name not in _PREDICATES),
)
"""Names of all tables, in an order in which their views can be created."""


def predicates(table: str, names: Collection[str]) -> list[str]:
    """Return the SQL conditions that apply the named filters to a table."""
    known = _PREDICATES.get(table)
    if known is None:
        columns = next(kind for kind in TABLES if kind.name == table).columns()
        condition = next((text for column, text in _BY_COLUMN.items() if column in columns), None)
        return [condition] if condition and names else []
    return list(dict.fromkeys(_conditions(known, names)))


BASE: Final = "base_"
"""Prefix of the variable with a filter's value for the base store of a comparison."""


def _conditions(known: Mapping[str, str], names: Collection[str]) -> Iterator[str]:
    for name in sorted(names):
        plain = name.removeprefix(BASE)
        if plain in known:
            yield known[plain].replace(f"getvariable('{plain}')", f"getvariable('{name}')")
