"""Builds the pages' addresses. An address contains a page's whole state and can be shared.

Names are parameters, not parts of the path, because a name may contain a slash or be missing.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from mcptally.output.html.text import is_printable

NULL: Final = "\N{EN DASH}"
"""The text of null in an address and in a cell."""
ANY: Final = "*"
"""In an address: every value but null."""
_CALL_COLUMNS: Final = frozenset({"call_id", "attempt_of", "continued_by"})


@dataclasses.dataclass(frozen=True, slots=True)
class Links:
    """Addresses of the pages below one root, `/TOKEN/`."""

    root: str

    def to(self, page: str, /, **given: object) -> str:
        """Return the address of a page with parameters, leaving out those that are None."""
        kept = {name: str(value) for name, value in given.items() if value is not None}
        return f"{self.root}{page}" + (f"?{urlencode(kept)}" if kept else "")

    def server(self, server: str | None) -> str:
        """Return the page of a server."""
        return self.to("server", server=server)

    def tool(self, server: str | None, tool: str | None) -> str:
        """Return the page of a tool."""
        return self.to("tool", server=server, tool=tool)

    def group(self, call: str) -> str:
        """Return the page of the error group that a call belongs to."""
        return self.to("group", call=call)

    def call(self, call: str) -> str:
        """Return the page of a call."""
        return f"{self.root}call/{quote(call, safe='')}"

    def session(self, session: str, page: int = 1, call: str = "") -> str:
        """Return the page of a session, at one of its calls."""
        number = page if page > 1 else None
        at = f"#{quote(call, safe='')}" if call else ""
        return self.to("session", session=session, at=call or None, page=number) + at

    def table(self, source: str, /, **state: object) -> str:
        """Return the page of a table or answer; `is.COLUMN` in `state` selects rows by a value."""
        return self.to(f"table/{quote(source, safe='')}", **state)

    def rows(self, source: str, /, **values: object) -> str:
        """Return the page of a table or answer, limited to rows that have these column values."""
        given = {name: NULL if value is None else value for name, value in values.items()}
        return self.table(source, **{f"is.{name}": value for name, value in given.items()})

    def calls(self, **values: object) -> str:
        """Return the page with calls that have these values in these columns."""
        return self.rows("calls", **values)

    def sql(self, query: str = "") -> str:
        """Return the page with the answer to an SQL query."""
        return self.to("sql", query=query or None)

    def of_value(self, column: str, value: object, row: Mapping[str, Any]) -> str | None:
        """Return the page that a value in an answer links to; None if it has no page.

        Args:
            column: the name of the column.
            value: a value in this column.
            row: all values in the row: a tool is found by its server.
        """
        if not isinstance(value, str) or not value or not is_printable(value):
            return None
        if column in _CALL_COLUMNS or column.endswith("_call"):
            return self.call(value)
        if column == "session":
            return self.session(value)
        if column == "server":
            return self.server(value)
        if column == "tool" and "server" in row:
            return self.tool(row["server"], value)
        if column == "template" and isinstance(row.get("call_id"), str):
            return self.group(row["call_id"])
        return None
