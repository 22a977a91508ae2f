"""What we print or export of other people's texts: no tokens, no controls, and not endless.

The shapes of secrets are the recorder's (`record.redact`), for one list of them is enough: this
module is the one place where analysis reads it. Where something was hidden, the text says so.
"""

import json
import re
from typing import Final

from mcptally.record.redact import policy

LIMIT: Final = 2000
"""Characters kept of a text."""

# C0, C1, soft hyphen; Arabic and Mongolian marks; fillers that look empty; zero-width and
# bidirectional ones; line separators; selectors (not emoji's own); surrogates, tags; no characters.
CONTROLS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Characters that a terminal acts on, that nobody sees, or that change the order of others."""


def escaped(text: str) -> str:
    """JSON text with every character of `CONTROLS` as an escape: the same values, and harmless."""
    return CONTROLS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    """A character as JSON escapes it; line breaks between values stay."""
    char = found[0]
    return char if char in "\n\r\t" else json.dumps(char)[1:-1]


def clean(text: str) -> str:
    """`text` on one line, with nothing in it that a terminal would act on."""
    return CONTROLS.sub(lambda m: " " if m[0] in "\n\r\t" else "\N{REPLACEMENT CHARACTER}", text)


def clean_lines(text: str) -> str:
    """`text` with the lines it has, each of them `clean`."""
    return "\n".join(map(clean, text.split("\n")))


def hidden(text: str) -> str:
    """`text` with token-like values replaced by `[redacted:NAME]`, however long it is."""
    found, count = policy("default").text(text.encode("utf-8", "replace"))
    return found.decode("utf-8", "replace") if count else text


def sanitised(text: str, limit: int = LIMIT) -> str:
    """`text` with token-like values replaced by `[redacted:NAME]`, cut to `limit` characters."""
    told = hidden(text)
    if len(told) <= limit:
        return told
    return f"{told[:limit]}… ({len(told) - limit} more characters)"
