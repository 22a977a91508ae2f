"""Checks the syntax of cron expressions.

An expression has the five fields of crontab(5), perhaps also seconds or a year, or it is a macro
such as `@daily`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    special: str = ""
    """Letters with a meaning in Quartz, alone or after a number."""


_MONTHS: Final = tuple("jan feb mar apr may jun jul aug sep oct nov dec".split())  # noqa: SIM905
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_SECOND: Final = _Field("second", 0, 59)
_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31, special="LW"),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _DAYS, special="L#"),
)
_YEAR: Final = _Field("year", 1970, 2199)
_READINGS: Final[Mapping[int, tuple[tuple[_Field, ...], ...]]] = {
    5: (_FIELDS,),
    6: ((_SECOND, *_FIELDS), (*_FIELDS, _YEAR)),
    7: ((_SECOND, *_FIELDS, _YEAR),),
}
"""Maps the number of fields to the fields' possible meanings: Quartz and Spring begin with seconds,
EventBridge ends with a year."""

MACROS: Final = frozenset(
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@reboot"]
)
"""Named schedules; `@every 5m` is also accepted."""
_EVERY: Final = re.compile(r"@every (?:\d+(?:\.\d+)?(?:ns|us|µs|ms|[smhd]))+\Z")
_LOOKS: Final = re.compile(r"\s*(?:@\w+|(?:[\d*/,\-?LW#A-Za-z]+\s+){4,6}[\d*/,\-?LW#A-Za-z]+)\s*\Z")


def looks_like(text: str) -> bool:
    """Return whether a string looks like a cron expression: `@` and a name, or 5 to 7 fields.

    At least one field must contain a digit or `*`.
    """
    return _LOOKS.match(text) is not None and (
        text.strip()[:1] == "@" or bool(re.search(r"[\d*]", text))
    )


def syntax_error(text: str) -> str | None:
    """Return a message about the first error in a cron expression, or None if it is valid."""
    stripped = text.strip()
    if stripped.startswith("@"):
        known = stripped.lower() in MACROS or _EVERY.match(stripped)
        return None if known else f"{stripped[:40]} is not a named schedule"
    parts = stripped.split()
    if not 5 <= len(parts) <= 7:
        return f"has {len(parts)} fields; 5 are needed, or 6 with seconds or a year"
    errors = [_first_error(parts, fields) for fields in _READINGS[len(parts)]]
    return None if None in errors else errors[0]


def _first_error(parts: Sequence[str], fields: Sequence[_Field]) -> str | None:
    errors = (_field_error(part, field) for part, field in zip(parts, fields, strict=True))
    return next((error for error in errors if error), None)


def _field_error(part: str, field: _Field) -> str | None:
    for item in part.split(","):
        base, slash, step = item.partition("/")
        if slash and not (step.isdigit() and int(step) > 0):
            return f"{field.name}: the step in {item[:40]!r} is not a positive number"
        error = _range_error(base, field)
        if error:
            return error
    return None


def _range_error(base: str, field: _Field) -> str | None:
    if base == "*" or (base == "?" and field.name.startswith("day")):
        return None
    if field.special and _is_special(base, field):
        return None
    low_text, dash, high_text = base.partition("-")
    low, high = _number(low_text, field), _number(high_text if dash else low_text, field)
    if low is None or high is None:
        return f"{field.name}: {base[:40]!r} is not a value from {field.low} to {field.high}"
    # A range of weekdays may extend past the end of the week: FRI-MON.
    if low > high and field.name != "day of the week":
        return f"{field.name}: the range {base[:40]!r} ends before it begins"
    return None


def _is_special(base: str, field: _Field) -> bool:
    if field.special == "LW":
        return re.match(r"(?:L(?:-\d+)?W?|W|\d+W)\Z", base, re.IGNORECASE) is not None
    day, mark, which = base.partition("#")
    if mark:
        return _number(day, field) is not None and which in {"1", "2", "3", "4", "5"}
    return base.upper() == "L" or (
        base[-1:].upper() == "L" and _number(base[:-1], field) is not None
    )


def _number(text: str, field: _Field) -> int | None:
    if text.lower() in field.names:
        first = 1 if field.name == "month" else 0
        return field.names.index(text.lower()) + first
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        return None
    return int(text) if field.low <= int(text) <= field.high else None
