"""Builds the pages' addresses. An address contains a page's entire state.

Names are query parameters, not path segments, because a name may contain a slash or be missing.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from mcptally.redaction.display import CONTROL_CHARACTERS

NULL: Final = "\N{EN DASH}"
"""Text that represents null, in addresses and in cells."""
ANY: Final = "*"
"""Text that represents every value except null, in addresses."""
_CALL_COLUMNS: Final = frozenset({"call_id", "attempt_of", "continued_by"})


@dataclasses.dataclass(frozen=True, slots=True)
class Links:
    """Builds the addresses of pages below the root `/TOKEN/`."""

    root: str

    def to(self, page: str, /, **given: object) -> str:
        """Return a page's address with the given parameters; leave out parameters that are None."""
        kept = {name: str(value) for name, value in given.items() if value is not None}
        return f"{self.root}{page}" + (f"?{urlencode(kept)}" if kept else "")

    def server(self, server: str | None) -> str:
        """Return the address of a server's page."""
        return self.to("server", server=server)

    def tool(self, server: str | None, tool: str | None) -> str:
        """Return the address of a tool's page."""
        return self.to("tool", server=server, tool=tool)

    def group(self, call: str) -> str:
        """Return the address of the page about a failed call's error group."""
        return self.to("group", call=call)

    def call(self, call: str) -> str:
        """Return the address of a call's page."""
        return f"{self.root}call/{quote(call, safe='')}"

    def session(self, session: str, page: int = 1, call: str = "") -> str:
        """Return the address of a session's page; with `call`, scrolled to that call."""
        number = page if page > 1 else None
        at = f"#{quote(call, safe='')}" if call else ""
        return self.to("session", session=session, at=call or None, page=number) + at

    def table(self, source: str, /, **state: object) -> str:
        """Return the address of a table or answer; `is.COLUMN` in `state` selects rows by value."""
        return self.to(f"table/{quote(source, safe='')}", **state)

    def rows(self, source: str, /, **values: object) -> str:
        """Return the address of a table or answer, limited to rows with the given values."""
        given = {name: NULL if value is None else value for name, value in values.items()}
        return self.table(source, **{f"is.{name}": value for name, value in given.items()})

    def calls(self, **values: object) -> str:
        """Return the address of the calls with the given column values."""
        return self.rows("calls", **values)

    def sql(self, query: str = "") -> str:
        """Return the address of an SQL query's answer."""
        return self.to("sql", query=query or None)

    def of_value(self, column: str, value: object, row: Mapping[str, Any]) -> str | None:
        """Return the address to which a value in an answer links; None if the value has no page.

        Args:
            column: the value's column.
            value: the value.
            row: all values in the row, because a tool's page also needs the server.
        """
        if not isinstance(value, str) or not value or CONTROL_CHARACTERS.search(value):
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
