"""Cron expressions: five fields as in crontab(5), more with seconds or a year, or @daily."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    special: str = ""
    """Letters of Quartz that stand alone or after a number."""


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
"""Number of fields → what they may be: seconds first as in Quartz and Spring, or a year last as in
EventBridge."""

MACROS: Final = frozenset(
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@reboot"]
)
"""Names of schedules; `@every 5m` is one more."""
_EVERY: Final = re.compile(r"@every (?:\d+(?:\.\d+)?(?:ns|us|µs|ms|[smhd]))+\Z")
_LOOKS: Final = re.compile(r"\s*(?:@\w+|(?:[\d*/,\-?LW#A-Za-z]+\s+){4,6}[\d*/,\-?LW#A-Za-z]+)\s*\Z")


def looks_like(text: str) -> bool:
    """Whether a text is meant as a cron expression: fields of digits, stars and marks."""
    return _LOOKS.match(text) is not None and (
        text.strip()[:1] == "@" or bool(re.search(r"[\d*]", text))
    )


def fault(text: str) -> str | None:
    """What is wrong with a cron expression; None if nothing is."""
    stripped = text.strip()
    if stripped.startswith("@"):
        known = stripped.lower() in MACROS or _EVERY.match(stripped)
        return None if known else f"{stripped[:40]} is no name of a schedule"
    parts = stripped.split()
    if not 5 <= len(parts) <= 7:
        return f"has {len(parts)} fields; 5 are needed, or 6 with seconds or a year"
    faults = [_first_fault(parts, fields) for fields in _READINGS[len(parts)]]
    return None if None in faults else faults[0]


def _first_fault(parts: Sequence[str], fields: Sequence[_Field]) -> str | None:
    told = (_part(part, field) for part, field in zip(parts, fields, strict=True))
    return next((words for words in told if words), None)


def _part(part: str, field: _Field) -> str | None:
    for item in part.split(","):
        base, slash, step = item.partition("/")
        if slash and not (step.isdigit() and int(step) > 0):
            return f"{field.name}: {item[:40]!r} has no step that counts"
        words = _range(base, field)
        if words:
            return words
    return None


def _range(base: str, field: _Field) -> str | None:
    if base == "*" or (base == "?" and field.name.startswith("day")):
        return None
    if field.special and _special(base, field):
        return None
    low_text, dash, high_text = base.partition("-")
    low, high = _number(low_text, field), _number(high_text if dash else low_text, field)
    if low is None or high is None:
        return f"{field.name}: {base[:40]!r} is no value of it ({field.low} to {field.high})"
    # A range may pass the end of the week, as FRI-MON does.
    if low > high and field.name != "day of the week":
        return f"{field.name}: the range {base[:40]!r} runs backwards"
    return None


def _special(base: str, field: _Field) -> bool:
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
