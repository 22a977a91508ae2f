"""Defines mcptally's exceptions and the exit codes of its commands.

An exception means that mcptally could not continue. Malformed traffic raises no exception; it
becomes rows in the `findings` table.

    McptallyError
    ├── UsageError        invalid arguments or options                       (exit 2)
    ├── UnreadableError   none of the given files could be read              (exit 3)
    ├── UnreachableError  a file in a remote archive cannot be fetched       (exit 3)
    ├── StoreError        not a store, or a store of another format version  (exit 3)
    ├── RuleError         a rule file that cannot be loaded                  (exit 2)
    └── QueryError        an unknown question, or SQL that DuckDB rejects    (exit 2)

Each message states what is wrong, where (`file:line` if known) and what to do next.
"""

import enum
import os
from collections.abc import Iterable
from typing import ClassVar


class Exit(enum.IntEnum):
    """Exit codes of all commands except `record`, which exits with its server's code."""

    DONE = 0
    """The command succeeded: no limit was exceeded and no check failed."""
    FAILED = 1
    """A `--fail-on` limit was exceeded, the input is invalid, or a check failed."""
    USAGE = 2
    """The command line, a rule file or a query is invalid; nothing was changed."""
    UNREADABLE = 3
    """None of the given files could be read, or the folder is not a store of this version."""
    INTERRUPTED = 130
    """The command was interrupted with Ctrl-C (128 + SIGINT)."""


class McptallyError(Exception):
    """The base class of all errors that mcptally raises deliberately."""

    exit_code: ClassVar[Exit] = Exit.FAILED


class UsageError(McptallyError):
    """Invalid arguments or options."""

    exit_code = Exit.USAGE


class UnreadableError(McptallyError):
    """None of the given files could be read."""

    exit_code = Exit.UNREADABLE


class UnreachableError(McptallyError):
    """A remote file cannot be fetched; the run stops, because rows would be missing."""

    exit_code = Exit.UNREADABLE


class StoreError(McptallyError):
    """The folder is not a store, or is a store that this version cannot read."""

    exit_code = Exit.UNREADABLE


class RuleError(McptallyError):
    """A rule file that cannot be loaded."""

    exit_code = Exit.USAGE


class QueryError(McptallyError):
    """A question that does not exist, or SQL that DuckDB rejects."""

    exit_code = Exit.USAGE


def reason(error: Exception) -> str:
    """Return why a file cannot be read, parsed or written, in the wording that all commands share.

    Messages from the operating system and from decoders contain details that users do not need.
    """
    import errno  # noqa: PLC0415  (the recorder starts without it)

    if isinstance(error, OSError):
        if error.errno == errno.ENOENT:
            return "no such file or folder"
        text = error.strerror or f"{error}"
        return text[:1].lower() + text[1:]
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8"
    if isinstance(error, RecursionError):
        return "is nested too deep"
    if column := getattr(error, "colno", None):  # an error from the JSON parser
        line = getattr(error, "lineno", 1)
        return (
            f"is not JSON: unexpected text at {f'line {line}, ' if line > 1 else ''}column {column}"
        )
    return f"{error}".replace("JSON is malformed", "is not JSON")  # msgspec's wording


NOT_IN_RECORDER = (
    "{} is not part of mcptally-recorder; install mcptally in another environment, for example: "
    "uvx mcptally"
)
"""Error message for the names and commands that mcptally-recorder does not have."""


def near(name: str, names: Iterable[str]) -> str:
    """Return a suggestion to append to a message: `; did you mean A or B?`.

    It contains the names that are closest to `name`, and is empty if no name is similar.
    """
    import difflib  # noqa: PLC0415  (the recorder starts without it)

    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def as_argument(path: str | os.PathLike[str]) -> str:
    """Quote a path for a shell command."""
    import shlex  # noqa: PLC0415  (the recorder starts without it)

    text = os.fspath(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
