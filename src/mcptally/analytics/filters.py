"""What a question is asked about: whose calls, of which time, and how many at the least.

Two kinds of filter. Time and client choose the *calls that count*, and every number is made from
those. Server and tool choose *rows*, where an answer has a column of that name: the scores of one
tool are what they are among all others. Where it has none, they choose the calls that count, too.
"""

import dataclasses
import datetime
import re
from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

from mcptally.errors import UsageError
from mcptally.tables.all_tables import TABLES
from mcptally.tables.calls import Calls
from mcptally.tables.findings import Findings
from mcptally.tables.messages import Messages
from mcptally.tables.recordings import Recordings
from mcptally.tables.tools import Tools

Moment: TypeAlias = datetime.datetime | datetime.date | str
"""A point in time: a datetime or date, or text as `moment` reads it."""

_AGO: Final = re.compile(r"(\d+)\s*([smhdw])", re.ASCII)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What is asked about; None: no limit.

    Attributes:
        server: label of a server.
        tool: name of a tool.
        since: calls made then or later.
        until: calls made before then.
        client: name that a client gives itself.
        min_calls: only rows that rest on so many calls.
    """

    server: str | None = None
    tool: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    client: str | None = None
    min_calls: int | None = None

    def given(self) -> dict[str, str | int | datetime.datetime]:
        """The filters that are set, by name; times as UTC.

        Raises:
            UsageError: a time that cannot be read, or an end before the beginning.
        """
        found = {
            field.name: moment(value, field.name) if field.name in {"since", "until"} else value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) is not None
        }
        if "since" in found and "until" in found and found["since"] >= found["until"]:
            raise UsageError(
                f"until ({found['until']}) is not after since ({found['since']}); no call is "
                "both made then or later and before"
            )
        return found


def moment(value: Moment, name: str = "time") -> datetime.datetime:
    """A point in time, UTC where no zone is said; a date is its first moment.

    Text is ISO 8601 (`2026-11-21`, `2026-11-21T14:30`, `…+02:00`) or how long ago (`90m`, `24h`,
    `7d`, `2w`).

    Raises:
        UsageError: neither.
    """
    utc = datetime.UTC
    if isinstance(value, str):
        if ago := _AGO.fullmatch(value.strip()):
            try:
                back = datetime.timedelta(**{_UNITS[ago[2]]: int(ago[1])})
                return datetime.datetime.now(utc) - back
            except OverflowError:
                raise UsageError(f"{name}: {value!r} is longer ago than time is counted") from None
        try:
            value = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            raise UsageError(
                f"{name}: {value!r} is no time; write 2026-11-21, 2026-11-21T14:30 (UTC), or how "
                "long ago: 90m, 24h, 7d"
            ) from None
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day, tzinfo=utc)
    return value.replace(tzinfo=utc) if value.tzinfo is None else value.astimezone(utc)


EVIDENCE: Final = frozenset({"server", "tool", "since", "until", "client"})
"""Filters that can choose the calls that count."""

_CALL: Final = "call_id IN (SELECT call_id FROM calls)"
_PLACE: Final = (
    f"({_CALL} OR call_id IS NULL AND "
    "(recording, seq, coalesce(index, 0)) IN (SELECT (recording, seq, index) FROM messages))"
)
_PREDICATES: Final[Mapping[str, Mapping[str, str]]] = {
    Calls.name: {
        "server": "server = getvariable('server')",
        "tool": "tool = getvariable('tool')",
        "client": "client = getvariable('client')",
        "since": "requested_at >= getvariable('since')",
        "until": "requested_at < getvariable('until')",
    },
    Recordings.name: {
        "server": "server = getvariable('server')",
        "tool": "recording IN (SELECT recording FROM calls)",
        "client": "recording IN (SELECT recording FROM calls)",
        "since": "ended_at >= getvariable('since')",
        "until": "opened_at < getvariable('until')",
    },
    Messages.name: {
        "server": "recording IN (SELECT recording FROM recordings)",
        "tool": _CALL,
        "client": "session IN (SELECT session FROM calls)",
        "since": "\"at\" >= getvariable('since')",
        "until": "\"at\" < getvariable('until')",
    },
    Findings.name: {
        "server": "server = getvariable('server')",
        "tool": "tool = getvariable('tool')",
        "client": _PLACE,
        "since": _PLACE,
        "until": _PLACE,
    },
    # Who read a list of tools is not in the table: a client's calls are set against all tools.
    Tools.name: {
        "server": "server = getvariable('server')",
        "tool": "tool = getvariable('tool')",
        "since": "last_seen >= getvariable('since')",
        "until": "first_seen < getvariable('until')",
    },
}
"""Table → filter → what holds for its rows. The values are variables of the connection; the other
tables named are filtered themselves, and made in this order."""

_ABOUT: Final = {
    "call_id": _CALL,
    "session": "session IN (SELECT session FROM calls)",
    "recording": "recording IN (SELECT recording FROM recordings)",
}
"""What holds for the rows of any other table, by the first of these columns that it has."""

ORDER: Final = (
    *_PREDICATES,
    *(table.name for table in TABLES if table.name not in _PREDICATES),
)
"""The tables in the order in which their views can be made."""


def predicates(table: str, names: Collection[str]) -> list[str]:
    """SQL that holds for the rows of a table that count, where filters of these names are set."""
    known = _PREDICATES.get(table)
    if known is None:
        columns = next(kind for kind in TABLES if kind.name == table).columns()
        about = next((what for column, what in _ABOUT.items() if column in columns), None)
        return [about] if about and names else []
    return list(dict.fromkeys(known[name] for name in sorted(names) if name in known))
