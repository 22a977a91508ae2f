"""Command lines that lead from a figure to the calls behind it, safe to paste into a shell.

A name that holds characters a terminal would act on never stands in a command: such a tool is
named by one of its calls.
"""

import re
import shlex
from typing import Final

from markupsafe import escape

from mcptally.page.words import plain

_ID: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._:-]{0,63}")
_NAMES_LIMIT: Final = 300
"""Characters that the names in a command may take, quoted: names of quotes grow twentyfold."""


class Commands:
    """Commands about one store."""

    def __init__(self, store: str) -> None:
        self.store = _path(store)

    def show(self, call: str | None) -> str | None:
        """Explain this call; None where the id is none that mcptally makes."""
        if call is None or not _ID.fullmatch(call):
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
        if all(map(plain, names)) and len(escape(_quoted("".join(names)))) <= _NAMES_LIMIT:
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
        if where:
            conditions.append(where)
        sql = (
            "SELECT call_id, requested_at, outcome, error_text FROM calls WHERE "
            f"{' AND '.join(conditions)} ORDER BY requested_at DESC"
        )
        return f"mcptally query {self.store} {_quoted(sql)}"

    def compare(self, base: str) -> str:
        """Compare a base store with this one."""
        return f"mcptally compare {_path(base)} {self.store} --all"

    def ask(self, question: str) -> str:
        """The whole answer to a standing question."""
        return f"mcptally query {self.store} {question} --limit 0"


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
