"""What we print or export of other people's arguments and errors: no tokens, and not endless.

The shapes of secrets are the recorder's (`record.redact`), for one list of them is enough: this
module is the one place where analysis reads it. Where something was hidden, the text says so.
"""

from typing import Final

from mcptally.record.redact import policy

LIMIT: Final = 2000
"""Characters kept of a text."""


def hidden(text: str) -> str:
    """`text` with token-like values replaced by `[redacted:NAME]`, however long it is."""
    found, count = policy("default").text(text.encode("utf-8", "replace"))
    return found.decode("utf-8", "replace") if count else text


def sanitised(text: str, limit: int = LIMIT) -> str:
    """`text` with token-like values replaced by `[redacted:NAME]`, cut to `limit` characters."""
    clean = hidden(text)
    if len(clean) <= limit:
        return clean
    return f"{clean[:limit]}… ({len(clean) - limit} more characters)"
