"""Numbers and strangers' texts as a reader of the page sees them.

Everything that was recorded passes through `shown`: secrets are hidden, and characters that would
turn, hide or join text (controls, bidirectional and zero-width ones) are written out.
"""

import datetime
import functools
import re
from typing import Final

from mcptally.output.plural import count as count  # noqa: PLC0414  (used as words.count)
from mcptally.redaction.display import CONTROLS, hidden

NAME_LIMIT: Final = 90
TEXT_LIMIT: Final = 300

_BREAK: Final = re.compile(r"[ \t\r]*\n\s*")


def plain(text: str) -> bool:
    """Whether nothing in `text` acts on a terminal or on the text around it."""
    return not CONTROLS.search(text)


def _written_out(match: re.Match[str]) -> str:
    character = match[0]
    if character in "\n\r\t":
        return {"\n": " \N{DOWNWARDS ARROW WITH CORNER LEFTWARDS} ", "\r": "", "\t": " "}[character]
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@functools.lru_cache(maxsize=8192)
def shown(text: str | None, limit: int = TEXT_LIMIT) -> str:
    """A stranger's text on one line, without secrets, every character visible, cut to `limit`."""
    if text is None:
        return "(none)"
    # What lies far behind the cut cannot be part of a secret that begins before it.
    said = CONTROLS.sub(_written_out, _BREAK.sub("\n", hidden(text[: limit + 4096])))
    return said if len(said) <= limit else f"{said[: limit - 1]}\N{HORIZONTAL ELLIPSIS}"


def name(text: str | None) -> str:
    """A name of a server, tool or client."""
    return shown(text, NAME_LIMIT)


def percent(share: float | None) -> str:
    """A share as a percentage, with as many digits as tell it from nothing and from all."""
    if share is None:
        return "\N{EN DASH}"
    if share in (0, 1):
        return f"{share:.0%}"
    edge = min(share, 1 - share)
    digits = 0 if edge >= 0.1 else 1 if edge >= 0.001 else 2
    text = f"{share:.{digits}%}"
    if text == f"{0:.{digits}%}":
        return "<0.01%"
    return ">99.99%" if text == f"{1:.{digits}%}" else text


def interval(low: float | None, high: float | None) -> str:
    """Two shares as a range."""
    if low is None or high is None:
        return "\N{EN DASH}"
    # An end that is nothing or all but for rounding is not worth a sign of its own.
    first, last = (percent(round(end, 4)) for end in (low, high))
    return f"{first.removesuffix('%')}\N{EN DASH}{last}"


def duration(ms: float | None) -> str:
    """Milliseconds in the unit that a person would say."""
    if ms is None:
        return "\N{EN DASH}"
    for below, unit, scale in ((1_000, "ms", 1), (60_000, "s", 1e3), (3_600_000, "min", 6e4)):
        if ms < below:
            return f"{_digits(ms / scale)} {unit}"
    return f"{_digits(ms / 3.6e6)} h"


def tokens(n: float | None) -> str:
    """A count of tokens, in thousands or millions where it is large."""
    if n is None:
        return "\N{EN DASH}"
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if n >= scale:
            return f"{_digits(n / scale)}{unit}"
    return f"{n:,.0f}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.2g}" if value >= 0.1 else f"{value:.1g}"


def moment(at: datetime.datetime | None) -> str:
    """A point in time, in UTC, to the minute."""
    if at is None:
        return "unknown time"
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M")


def span(first: datetime.datetime | None, last: datetime.datetime | None) -> str:
    """From when to when, in UTC; the day once where it is one day."""
    if first is None and last is None:
        return "at times that are not known"
    start, end = moment(first), moment(last)
    if start == end:
        return f"{start} UTC"
    if start[:10] == end[:10]:
        end = end[11:]
    return f"{start} to {end} UTC"


def key(value: object) -> str:
    """What a column is sorted by: steady digits of a number, a time's ISO text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, float)):
        return f"{value:.5g}" if isinstance(value, float) else str(value)
    return moment(value) if isinstance(value, datetime.datetime) else str(value)
