"""Command lines that lead from a figure to the calls behind it, safe to paste into a shell.

A name that holds a secret, or characters a terminal would act on, never stands in a command: such a
tool is named by one of its calls.
"""

import re
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from markupsafe import escape

from mcptally.analytics.filters import moment
from mcptally.output.html.text import plain
from mcptally.redaction.display import hidden

_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:-]{0,63}")
_NAMES_LIMIT: Final = 300
"""Characters that the names in a command may take, quoted: names of quotes grow twentyfold."""


class Commands:
    """Commands about one store, or several as one, and of it the calls that a page is about.

    Args:
        store: its folder.
        more: folders of the others.
        filters: which calls the page counts; as `Store.ask` takes them.
    """

    def __init__(
        self, store: str, *more: str, filters: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.store = _path(store)
        self._alone = not more
        self._query = " ".join(
            ["mcptally query", self.store, *(f"--with {_path(s)}" for s in more)]
        )
        # What cannot be pasted is left out: then the command gives more than was asked.
        told = {key: str(value) for key, value in filters.items() if _is_short(str(value))}
        self._flags = "".join(f" {shlex.quote(f'--{key}={value}')}" for key, value in told.items())
        self._where = [f"client = {_literal(told['client'])}"] if "client" in told else []
        for key, sign in (("since", ">="), ("until", "<")):
            if key in filters:
                at = moment(filters[key]).isoformat()
                self._where.append(f"requested_at {sign} TIMESTAMPTZ '{at}'")

    def show(self, call: str | None) -> str | None:
        """Explain this call; None of several stores, or where its id is none of ours."""
        if call is None or not self._alone or not _ID.fullmatch(call):
            return None
        return f"mcptally show {self.store} {call}"

    def calls(
        self, server: str | None, tool: str | None, where: str, example: str | None
    ) -> str | None:
        """List a tool's calls (or a server's) for which a condition holds, the latest first.

        None where only an example could say which tool is meant, and there is none.

        Args:
            server: its label.
            tool: its name; None: all of the server's.
            where: the condition, SQL of ours; empty: all of its calls.
            example: one of the calls.
        """
        about = {"server": server} if tool is None else {"server": server, "tool": tool}
        names = [value for value in about.values() if value is not None]
        if _is_short("".join(names)):
            conditions = [
                f"{name} IS NULL" if value is None else f"{name} = {_literal(value)}"
                for name, value in about.items()
            ]
        elif example is not None and _ID.fullmatch(example):
            one = f"SELECT * FROM calls WHERE call_id = '{example}'"
            conditions = [
                f"{name} IS NOT DISTINCT FROM (SELECT {name} FROM ({one}))" for name in about
            ]
        else:
            return None
        conditions += [condition for condition in (where, *self._where) if condition]
        sql = (
            "SELECT call_id, requested_at, outcome, error_text FROM calls WHERE "
            f"{' AND '.join(conditions)} ORDER BY requested_at DESC"
        )
        return f"{self._query} {_quoted(sql)}"

    def compare(self, base: str) -> str:
        """Compare a base store with this one."""
        return f"mcptally compare {_path(base)} {self.store} --all"

    def ask(self, question: str) -> str:
        """The whole answer to a standing question, about the calls that the page is about."""
        return f"{self._query} {question}{self._flags} --limit 0"


def _is_short(names: str) -> bool:
    """Whether names may stand in a command: nothing acts, no secret, and it stays a line."""
    short = plain(names) and len(escape(_quoted(names))) <= _NAMES_LIMIT
    return short and hidden(names) == names


def _path(store: str) -> str:
    given = store if plain(store) else "STORE"
    return shlex.quote(f"./{given}" if given.startswith("-") else given)


_SPECIAL: Final = frozenset('"$`\\!')
"""What a shell reads inside double quotes."""


def _quoted(sql: str) -> str:
    """SQL as one word of a shell; legibly, in double quotes, where nothing in it forbids that."""
    return shlex.quote(sql) if _SPECIAL & set(sql) else f'"{sql}"'


def _literal(value: str) -> str:
    doubled = value.replace("'", "''")
    return f"'{doubled}'"
