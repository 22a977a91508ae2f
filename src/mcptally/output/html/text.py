"""Formats numbers, times and recorded texts for the page.

All recorded text passes through `shown`, which masks secrets and escapes control, bidirectional and
zero-width characters.
"""

import datetime
import functools
import re
from typing import Final

from mcptally.redaction.display import CONTROL_CHARACTERS, mask_text

NAME_LIMIT: Final = 90
TEXT_LIMIT: Final = 300
_WHOLE: Final = 40_000
"""Maximum length of texts that are masked as a whole; longer texts are cut before masking."""

_BREAK: Final = re.compile(r"[ \t\r]*\n\s*")


def is_printable(text: str) -> bool:
    """Return whether a text is free of control, invisible and bidirectional characters."""
    return not CONTROL_CHARACTERS.search(text)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in "\n\r\t":
        return {"\n": " \N{DOWNWARDS ARROW WITH CORNER LEFTWARDS} ", "\r": "", "\t": " "}[character]
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@functools.lru_cache(maxsize=8192)
def shown(text: str | None, limit: int = TEXT_LIMIT) -> str:
    """Return recorded text on one line, masked, cut, and with control characters escaped."""
    if text is None:
        return "(none)"
    # Mask 4096 characters past the limit, too: a secret that starts before the limit is assumed to
    # end there.
    line = CONTROL_CHARACTERS.sub(_escape, _BREAK.sub("\n", mask_text(text[: limit + 4096])))
    return line if len(line) <= limit else f"{line[: limit - 1]}\N{HORIZONTAL ELLIPSIS}"


def shown_lines(text: str, limit: int) -> str:
    """Return recorded text on several lines: masked, with control characters escaped, and cut."""
    masked = mask_text(text if len(text) <= _WHOLE else text[: limit + 4096])
    lines = CONTROL_CHARACTERS.sub(
        lambda found: found[0] if found[0] == "\n" else _escape(found), masked.replace("\r\n", "\n")
    )
    if len(lines) <= limit:
        return lines
    return f"{lines[:limit]}\N{HORIZONTAL ELLIPSIS}\n(cut after {limit:,} characters)"


def name(text: str | None) -> str:
    """Return a server's, tool's or client's name as `shown` does, cut to `NAME_LIMIT`."""
    return shown(text, NAME_LIMIT) or "(empty name)"


def percent(share: float | None) -> str:
    """Format a share in percent, with enough digits that only 0 and 1 become 0% and 100%."""
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
    """Format the range between two shares, with an en dash and a single percent sign."""
    if low is None or high is None:
        return "\N{EN DASH}"
    # Round first, so that an end close to 0 or 1 does not become "<0.01%" or ">99.99%".
    first, last = (percent(round(end, 4)) for end in (low, high))
    return f"{first.removesuffix('%')}\N{EN DASH}{last}"


def duration(ms: float | None) -> str:
    """Format milliseconds as ms, s, min or h."""
    if ms is None:
        return "\N{EN DASH}"
    for below, unit, scale in ((1_000, "ms", 1), (60_000, "s", 1e3), (3_600_000, "min", 6e4)):
        if ms < below:
            return f"{_digits(ms / scale)} {unit}"
    return f"{_digits(ms / 3.6e6)} h"


def tokens(n: float | None) -> str:
    """Format a number of tokens; from 1,000 on, in thousands or millions."""
    if n is None:
        return "\N{EN DASH}"
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if n >= scale:
            return f"{_digits(n / scale)}{unit}"
    return f"{n:,.0f}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.2g}" if value >= 0.1 else f"{value:.1g}"


def moment(at: datetime.datetime | None) -> str:
    """Format a time in UTC, to the minute."""
    if at is None:
        return "unknown time"
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M")


def span(first: datetime.datetime | None, last: datetime.datetime | None) -> str:
    """Format the range between two times in UTC. A date that both share appears once."""
    if first is None and last is None:
        return "at unknown times"
    start, end = moment(first), moment(last)
    if start == end:
        return f"{start} UTC"
    if start[:10] == end[:10]:
        end = end[11:]
    return f"{start} to {end} UTC"


def sort_key(value: object) -> str:
    """Return the key by which the page's script sorts a cell.

    Floats are rounded to five digits, so that a store yields the same page on every machine.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, float)):
        return f"{value:.5g}" if isinstance(value, float) else str(value)
    return moment(value) if isinstance(value, datetime.datetime) else str(value)
