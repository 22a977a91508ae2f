"""Converts values to JSON values and to the text of table cells."""

import datetime
import decimal
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from mcptally.redaction.display import clean_line
from mcptally.tables.outcomes import UNKNOWN, Fault

SHARE: Final = re.compile(
    r"_rate(_|$)|(?:^|_)share(_|$)|^(?:valid_worked|invalid_precision|invalid_recall|preventable"
    r"|refusal_precision)(_|$)"
)
"""Matches names of columns that hold shares from 0 to 1, which tables show as percentages."""
_CERTAINTY: Final = re.compile(r"certainty$")
"""Matches names of columns that hold a certainty: a probability in percent."""

FORMULA: Final = (
    "^[\\s\\x00-\\x1f\\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*"
    "[=+\\-@\uff1d\uff0b\uff0d\uff20]|^[\\t\\r\\n]"
)
"""Regular expression, in Python and in Arrow, for text that a spreadsheet may run as a formula. In
Arrow, `\\s` matches only ASCII whitespace, so other spaces are listed."""


def plain(value: object) -> Any:
    """Convert a value to JSON: NaN to null, decimals to numbers, times and bytes to text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, pa.MonthDayNano):  # this is a subclass of tuple, so check it first
        return _interval(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def _interval(value: pa.MonthDayNano) -> str:
    """Format an SQL interval as text, for example `14 months 1 day 00:01:30`.

    Months, days and time stay separate, because months and days vary in length.
    """
    units = ((value.months, "month"), (value.days, "day"))
    parts = [f"{n} {unit}{'' if abs(n) == 1 else 's'}" for n, unit in units if n]
    if value.nanoseconds or not parts:
        seconds, microseconds = divmod(abs(value.nanoseconds) // 1000, 1_000_000)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        sign = "-" if value.nanoseconds < 0 else ""
        fraction = f".{microseconds:06}" if microseconds else ""
        parts.append(f"{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}")
    return " ".join(parts)


def cell(name: str, value: object) -> str:
    """Format a value for a table cell: shares as percentages, times to the second."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, decimal.Decimal):
        value = plain(value)
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        if SHARE.search(name):
            return f"{value:.1%}"
        if _CERTAINTY.search(name):
            return f"{whole_certainty(value)} %"
        if "confidence" in name:
            return f"{value:.0f} %"
        return f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, list):
        return _cut(", ".join(cell("", v) for v in value[:CELL]))
    if type(value) is tuple:  # an entry of a map
        return _cut(": ".join(cell("", v) for v in value))
    if isinstance(value, dict):
        return _cut(json.dumps(plain(value), ensure_ascii=False))
    return _cut(str(plain(value)))


def whole_certainty(percent: float) -> int:
    """Round a certainty down to a whole percentage, at most 99, because no verdict is certain."""
    return min(int(percent), 99)


def certain(certainty: float | None) -> str:
    """Format the probability that a claim is correct, in parentheses."""
    return "" if certainty is None else f" ({whole_certainty(certainty)}% sure)"


def claim(row: Mapping[str, Any]) -> str:
    """Return the fault that a row about a problem or its calls claims, and its certainty."""
    sure = certain(row["certainty"])
    if row["fault"] is None:
        return f"{UNKNOWN}, perhaps {row['suspected']}{sure}" if row["suspected"] else UNKNOWN
    probably = "probably " if row["uncertain"] else ""
    part = _SET_UP.get(row["fault"], "") if row["kind"] == "misconfigured" else ""
    other = _OWN_POLICY if row["uncertain"] and row["reason"] == "server_policy" else ""
    return f"{probably}{row['fault']}{sure}{part}{other}"


_SET_UP: Final[Mapping[str, str]] = {
    Fault.TOOL: ", in how it is set up",
    Fault.CLIENT: ", in how it starts the server: as another user",
}
_OWN_POLICY: Final = ", or the server's operator, who can change this limit or rule"

CELL: Final = 1000
"""Maximum length of a table cell in characters: laying out megabytes would take minutes."""


def _cut(text: str) -> str:
    return clean_line(text if len(text) <= CELL else f"{text[:CELL]}\N{HORIZONTAL ELLIPSIS}")


NO_EVIDENCE: Final = "no evidence"
NEVER_WORKED: Final = "never worked"


READ_BESIDE: Final = frozenset({"ok", "suspected", "from_start", "kind", "servers", "first_seen"})
"""Columns that `cell_of` reads besides the one that it formats and the ends of its interval."""


def cell_of(name: str, row: Mapping[str, Any]) -> str:
    """Format a value in a row as `cell` does, but use words where a number would mislead.

    In a row of scores, a null confidence is `NO_EVIDENCE`, and a success rate without a success is
    `NEVER_WORKED`. In a row of problems, the suspected fault replaces an unknown fault, and the
    time when the problem was first seen replaces an unknown onset.
    """
    if name == "fault" and row[name] is None and "suspected" in row:
        return ", perhaps ".join(filter(None, (UNKNOWN, row["suspected"])))
    if name == "since" and row[name] is None and "from_start" in row:
        return first_seen(row)
    if name == "confidence" and row[name] is None and f"{name}_low" in row:
        return NO_EVIDENCE
    if name == "success_rate" and row[name] == 0 and row.get("ok") == 0:
        return NEVER_WORKED
    return cell(name, row[name])


def first_seen(row: Mapping[str, Any]) -> str:
    """Return a phrase for when a problem without a known onset was first seen; empty if unknown."""
    if row["kind"] == "not_started":
        return "from the first start"
    if row["kind"] == "not_connected":
        return "from the first request"
    if row["from_start"]:
        return "already in the first session"
    of_one_start = row["kind"] in {"start", "crash"} and len(row["servers"]) == 1
    if row["from_start"] is None and not of_one_start:
        return ""
    return f"first seen {cell('first_seen', row['first_seen'])[:16]}"


def distinct_names(names: Sequence[str]) -> list[str]:
    """Make column names distinct by adding `_1`, `_2` … to repeats, which SQL allows."""
    seen: dict[str, int] = {}
    distinct = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        distinct.append(name if seen[name] == 1 else f"{name}_{seen[name] - 1}")
    return distinct


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of this type are numbers, which tables right-align."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
