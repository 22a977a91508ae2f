"""Builds command lines with which readers can look up the calls behind a number.

The commands are safe to paste into a shell. A name with secrets or control characters is never part
of a command; a tool with such a name is selected by one of its calls.
"""

import re
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from markupsafe import escape

from mcptally.analytics.filters import parse_time
from mcptally.errors import as_argument
from mcptally.output.html.text import is_printable
from mcptally.redaction.display import mask_text

_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:-]{0,63}")
_NAMES_LIMIT: Final = 300
"""Maximum length of the quoted names in a command; quoting may make a name 20 times as long."""


class Commands:
    """Builds commands for a page's store and filters.

    Args:
        store: the store's folder.
        filters: the page's filters, as in `Store.ask`.
    """

    def __init__(self, store: str, filters: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.store = _path(store)
        self._query = f"mcptally query {self.store}"
        # Omit filters that are unsafe to paste; the command then returns more rows.
        safe = {key: str(value) for key, value in filters.items() if _is_safe(str(value))}
        self._flags = "".join(f" {shlex.quote(f'--{key}={value}')}" for key, value in safe.items())
        self._where = [
            f"{key} = {_literal(safe[key])}" for key in ("client", "model") if key in safe
        ]
        for key, operator in (("since", ">="), ("until", "<")):
            if key in filters:
                time = parse_time(filters[key]).isoformat()
                self._where.append(f"requested_at {operator} TIMESTAMPTZ '{time}'")

    def show(self, call: str | None) -> str | None:
        """Return the command that explains a call; None if the id does not look like a call id."""
        if call is None or not _ID.fullmatch(call):
            return None
        return f"mcptally show {self.store} {call}"

    def calls(
        self, server: str | None, tool: str | None, where: str, example: str | None
    ) -> str | None:
        """Return a command that lists calls to a tool or server, latest first.

        Returns None if the names are unsafe to paste and no example is given.

        Args:
            server: the server's label.
            tool: the tool's name; None for all calls to the server.
            where: an SQL condition, which must not contain recorded text; empty for all calls.
            example: the id of one of the calls.
        """
        wanted = {"server": server} if tool is None else {"server": server, "tool": tool}
        names = [value for value in wanted.values() if value is not None]
        if _is_safe("".join(names)):
            conditions = [
                f"{name} IS NULL" if value is None else f"{name} = {_literal(value)}"
                for name, value in wanted.items()
            ]
        elif example is not None and _ID.fullmatch(example):
            one = f"SELECT * FROM calls WHERE call_id = '{example}'"
            conditions = [
                f"{name} IS NOT DISTINCT FROM (SELECT {name} FROM ({one}))" for name in wanted
            ]
        else:
            return None
        return self.all_calls(*conditions, *filter(None, [where]))

    def all_calls(self, *conditions: str) -> str:
        """Return a command that lists the calls that meet SQL conditions, latest first."""
        sql = (
            "SELECT call_id, requested_at, outcome, error_text FROM calls WHERE "
            f"{' AND '.join([*conditions, *self._where])} ORDER BY requested_at DESC"
        )
        return f"{self._query} {_quoted(sql)}"

    def compare(self, base: str) -> str:
        """Return the command that compares this store with a base store."""
        return f"mcptally compare {_path(base)} {self.store} --all"

    def of_everything(self) -> tuple[str, str, str]:
        """Return three commands: list all problems, write the whole report, serve the pages."""
        return (
            self.ask("priorities"),
            f"mcptally report {self.store} -o report.html",
            f"mcptally explore {self.store} --open",
        )

    def ask(self, question: str) -> str:
        """Return a command that prints the whole answer to a question under the page's filters."""
        return f"{self._query} {question}{self._flags} --limit 0"


def _is_safe(names: str) -> bool:
    """Return whether names are safe in a command: short, without control characters and secrets."""
    short = is_printable(names) and len(escape(_quoted(names))) <= _NAMES_LIMIT
    return short and mask_text(names) == names


def _path(store: str) -> str:
    return as_argument(store if is_printable(store) else "STORE")


_SPECIAL: Final = frozenset('"$`\\!')
"""Characters that shells interpret inside double quotes."""


def _quoted(sql: str) -> str:
    """Quote SQL for a shell. If safe, use double quotes, which are easier to read."""
    return shlex.quote(sql) if _SPECIAL & set(sql) else f'"{sql}"'


def _literal(value: str) -> str:
    doubled = value.replace("'", "''")
    return f"'{doubled}'"
