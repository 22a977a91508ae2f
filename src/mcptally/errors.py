"""Everything mcptally raises on purpose.

An exception means that *we* could not go on; bad traffic is data and becomes rows.

    McptallyError
    ├── UsageError        the request makes no sense as it stands         (exit 2)
    ├── UnreadableError   nothing of what was named could be read         (exit 3)
    ├── StoreError        the directory is no store, or not one of ours   (exit 3)
    ├── RuleError         a rule file that cannot be loaded               (exit 2)
    └── QueryError        a question or SQL that DuckDB refuses           (exit 2)

A message says what, where (`file:line` where there is one) and what to do next.
"""

import enum
from collections.abc import Iterable
from typing import ClassVar


class Exit(enum.IntEnum):
    """Exit codes of every command but `record`, which exits as its server did."""

    DONE = 0
    """Done, and nothing that was asked about is wrong."""
    FAILED = 1
    """Beyond what `--fail-on` allows, invalid, or not healthy."""
    USAGE = 2
    """The command, a file of rules or a query makes no sense as it stands; nothing was done."""
    UNREADABLE = 3
    """Nothing of what was named could be read, or it is no store of this version."""
    INTERRUPTED = 130
    """Ctrl-C: what was asked was given up at once, as shells count it (128 + SIGINT)."""


class McptallyError(Exception):
    """Base of all errors that mcptally raises on purpose."""

    exit_code: ClassVar[Exit] = Exit.FAILED


class UsageError(McptallyError):
    """What was asked for makes no sense as it stands."""

    exit_code = Exit.USAGE


class UnreadableError(McptallyError):
    """Nothing of what was named could be read."""

    exit_code = Exit.UNREADABLE


class StoreError(McptallyError):
    """The directory is not a store, or not one that this version reads."""

    exit_code = Exit.UNREADABLE


class RuleError(McptallyError):
    """A rule file that cannot be loaded."""

    exit_code = Exit.USAGE


class QueryError(McptallyError):
    """A question that does not exist, or SQL that DuckDB refuses."""

    exit_code = Exit.USAGE


def near(name: str, names: Iterable[str]) -> str:
    """A half-sentence that offers the names closest to a misspelt one, or ''."""
    import difflib  # noqa: PLC0415  (the recorder starts without it)

    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""
