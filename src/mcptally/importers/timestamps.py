"""Converts other programs' timestamps and durations to nanoseconds.

Timestamps without a time zone are interpreted in the zone given by `--timezone`. The default is
this machine's zone, because logs are mostly imported where they were written. If a timestamp is
ambiguous because of daylight saving time, the earlier interpretation is used.
"""

import datetime
import functools
import re
import zoneinfo
from typing import Any, Final

from mcptally.errors import UsageError

_ISO: Final = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})[T ](?P<time>\d{2}:\d{2}:\d{2})(?:[.,](?P<part>\d{1,9})\d*)?"
    r"\s?(?P<zone>Z|[+-]\d{2}:?\d{2})?\Z"
)
_OFFSET: Final = re.compile(r"(?P<sign>[+-])(?P<hours>\d{2}):?(?P<minutes>\d{2})\Z")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECOND: Final = 10**9
_LATEST: Final = 2**63 - 1

# A number's magnitude reveals its unit: each range covers the years 1980 to 2200.
_UNITS: Final = ((3.2e8, 7.3e9, 10**9), (3.2e11, 7.3e12, 10**6), (3.2e14, 7.3e15, 1000))

_DURATION: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s?(?P<unit>ms|us|µs|ns|s|m|h)")
_MAX_DURATION: Final = 100
_UNIT_NS: Final = {"h": 3600 * _SECOND, "m": 60 * _SECOND, "s": _SECOND, "ms": 10**6}
_SMALL_NS: Final = {"us": 1000, "µs": 1000, "ns": 1}


def parse_timezone(name: str) -> datetime.tzinfo | None:
    """Return the time zone with a name such as `Europe/Berlin`, `UTC` or `+02:00`.

    Returns None for `local`.

    Raises:
        UsageError: there is no such time zone.
    """
    if name == "local":
        return None
    if name.upper() in {"UTC", "Z"}:
        return datetime.UTC
    if match := _OFFSET.match(name):
        minutes = int(match["hours"]) * 60 + int(match["minutes"])
        if minutes < 24 * 60:
            delta = datetime.timedelta(minutes=minutes if match["sign"] == "+" else -minutes)
            return datetime.timezone(delta)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"no time zone is called {name!r}; use local, UTC, +02:00 or a name like Europe/Berlin"
        ) from error


def parse_timestamp(value: Any, naive: datetime.tzinfo | None = None) -> int | None:
    """Convert an ISO 8601 string or a Unix time to UTC nanoseconds; return None for other values.

    `naive` is the time zone assumed for strings without one; None means this machine's time zone.
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return _number(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    match = _ISO.match(text)
    if match is None:
        try:
            return _number(int(text)) if text.isascii() and text.isdigit() else _number(float(text))
        except ValueError:
            return None
    seconds = _seconds(match["day"], match["time"], match["zone"], naive)
    if seconds is None:
        return None
    whole = seconds * _SECOND + int((match["part"] or "0").ljust(9, "0"))
    return whole if 0 < whole <= _LATEST else None


@functools.lru_cache(maxsize=1024)  # adjacent lines are often from the same second
def _seconds(day: str, time: str, written: str | None, naive: datetime.tzinfo | None) -> int | None:
    """Convert a day and time to seconds since 1970, in the time zone `written`, or else `naive`."""
    try:
        # Offsets of 24 hours or more are invalid and raise ValueError.
        when = datetime.datetime.fromisoformat(f"{day}T{time}{written or ''}")
        if not written:
            when = when.astimezone() if naive is None else when.replace(tzinfo=naive)
        return (when - _EPOCH) // datetime.timedelta(seconds=1)
    except (ValueError, OverflowError, OSError):
        return None


def _number(value: float) -> int | None:
    if not 0 < value <= _LATEST:  # also rejects NaN
        return None
    for low, high, unit in _UNITS:
        if low <= value < high:
            if isinstance(value, int):
                return value * unit
            # A float is exact to the microsecond; further digits are noise.
            return round(value * unit / 1000) * 1000
    return int(value) if value >= 3.2e17 else None


def add_duration(start: int | None, nanoseconds: float | None) -> int | None:
    """Return `start` plus a number of nanoseconds, or `start` itself if the sum is out of range."""
    if start is None or nanoseconds is None or not abs(nanoseconds) <= _LATEST:  # also rejects NaN
        return start
    moved = start + round(nanoseconds)
    return moved if 0 < moved <= _LATEST else start


def parse_duration(text: str) -> int | None:
    """Convert a duration such as `505ms` or `1m 5s` to nanoseconds; return None for other text."""
    if len(text) > _MAX_DURATION:
        return None
    rest = _DURATION.sub("", text).strip()
    found = list(_DURATION.finditer(text))
    if rest or not found:
        return None
    units = _UNIT_NS | _SMALL_NS
    return round(sum(float(match["number"]) * units[match["unit"]] for match in found))
