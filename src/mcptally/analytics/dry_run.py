"""Predicts from a store whether a server would accept a call (the validation protocol, offline).

If the server itself has validated the same tool, definition and arguments before, its answer is
returned. Otherwise, three things are checked: the schema, the arguments' semantics, and earlier
calls with the same paths, tables, keys and addresses. Arguments that cannot be checked offline are
listed as unchecked.
"""

import dataclasses
import datetime
import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mcptally.analytics.store import Store, retry_if_replaced
from mcptally.errors import near
from mcptally.jsonschemas.validators import json_type
from mcptally.redaction.display import clean_line, mask_and_cut
from mcptally.seeds.javascript import judgeable
from mcptally.seeds.validation_logic.arguments import unwrapped
from mcptally.seeds.validation_protocol.argument_semantics import (
    Remark,
    semantic_parameters,
    semantic_remarks,
    tables_in_sql,
)
from mcptally.seeds.validation_protocol.schema_errors import schema_remarks
from mcptally.seeds.validation_protocol.texts import canonical
from mcptally.seeds.violation import pointer
from mcptally.wire.nesting import (
    MAX_DEPTH,
    is_too_deep,
    is_value_too_deep,
    with_raised_recursion_limit,
)

MIN_CALLS: Final = 5
"""Number of successful calls from which an argument is compared with earlier values."""

RECENT: Final = 10_000
"""Number of most recent successful calls with whose values an argument is compared."""

MAX_TEXT: Final = 300
"""Maximum number of characters of a recorded text that is shown."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The result of a dry run, with the source from which it is derived."""

    valid: bool
    errors: list[str]
    warnings: list[str]
    source: str

    def to_json(self) -> str:
        """Format the answer as a JSON object with the members valid, errors and warnings."""
        members = {"valid": self.valid, "errors": self.errors, "warnings": self.warnings}
        return json.dumps(members, ensure_ascii=False)


@with_raised_recursion_limit
def validate(store: Store, *, server: str, tool: str, arguments: Any) -> Answer:
    """Predict whether a server would accept a call, without making it.

    Args:
        store: a store of earlier traffic.
        server: the server's label, or the name that it reports.
        tool: the tool's name.
        arguments: the call's arguments; a wrapped or stringified object is unwrapped.
    """
    return retry_if_replaced(
        [store], lambda: _DryRun(store, server, tool, arguments).answer(), consistent=True
    )


class _DryRun:
    """A dry run in progress: the call, and the errors and warnings found so far."""

    def __init__(self, store: Store, server: str, tool: str, arguments: Any) -> None:
        self.store = store
        self.server, self.tool, self.arguments = server, tool, arguments
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def answer(self) -> Answer:
        label = self._server_label()
        if label is None:
            return self._result("names of servers")
        self.server = label
        definition = self._definition()
        if definition is None and self.errors:
            return self._result("definitions of the server's tools")
        digest, schema = definition or (None, None)
        arguments = self._unwrapped(schema)
        if arguments is None:
            return self._result("the arguments themselves")
        if native := self._validated_by_server(digest, arguments):
            return native
        remarks = []
        if schema is None:
            words = "arguments against their schema (no definition of the tool was recorded)"
            remarks.append(Remark("unchecked", "", words))
        else:
            remarks += schema_remarks(schema, arguments)
            remarks += semantic_remarks(schema, arguments, tools=self._tools())
        remarks += self._unusual_values(arguments)
        earlier = list(self._earlier_use(schema, arguments))
        known = {remark.name for remark in earlier}
        for remark in remarks:
            # If an earlier use of the value is known, omit the remark that the value is unchecked.
            if remark.level != "unchecked" or remark.name not in known:
                self._add(remark)
        for remark in [*earlier, *self._same_call(arguments)]:
            self._add(remark)
        return self._result(
            f"definition {digest}, {self._time_range()}" if digest else self._time_range()
        )

    def _add(self, remark: Remark) -> None:
        if remark.level == "unchecked":
            self.warnings.append(_shown(f"Unchecked offline: {remark.message}"))
        elif remark.message == "Missing required parameter":
            self.errors.append(_shown(f"{remark.message}: {remark.name}"))
        else:
            about = f'Parameter "{remark.name}": ' if remark.name else ""
            remarks = self.errors if remark.level == "error" else self.warnings
            remarks.append(_shown(about + remark.message))

    def _result(self, source: str) -> Answer:
        errors, warnings = (list(dict.fromkeys(texts)) for texts in (self.errors, self.warnings))
        return Answer(not errors, errors, warnings, source)

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        # Use Arrow, because fetchall() needs pytz to return times.
        rows = self.store.sql(sql, params=list(values)).to_arrow_table().to_pylist()
        return [tuple(row.values()) for row in rows]

    def _server_label(self) -> str | None:
        known = self._rows(
            "SELECT DISTINCT server, server_name FROM calls WHERE server IS NOT NULL"
        )
        labels = {label for label, _ in known}
        if self.server in labels:
            return self.server
        named = {label for label, name in known if name == self.server}
        if len(named) == 1:
            return str(named.pop())
        if named:
            labels_of_name = ", ".join(sorted(named))
            words = f"{labels_of_name} all report the name {self.server}; give one of these labels"
            self.errors.append(_shown(words))
        else:
            names = labels | {name for _, name in known if name}
            self.errors.append(_shown(f"Unknown server: {self.server}{near(self.server, names)}"))
        return None

    def _definition(self) -> tuple[str, str | None] | None:
        rows = self._rows(
            "SELECT definition, input_schema FROM tools WHERE server = ? AND tool = ? "
            "ORDER BY last_seen DESC, first_seen DESC, definition LIMIT 1",
            self.server,
            self.tool,
        )
        if rows:
            return rows[0]
        listed = self._tools()
        called = self._rows(
            "SELECT 1 FROM calls WHERE server = ? AND tool = ? AND outcome = 'ok' LIMIT 1",
            self.server,
            self.tool,
        )
        if listed or not called:
            hint = near(self.tool, listed)
            self.errors.append(_shown(f"Unknown tool: {self.tool}{hint}"))
        return None

    def _tools(self) -> frozenset[str]:
        rows = self._rows("SELECT DISTINCT tool FROM tools WHERE server = ?", self.server)
        return frozenset(name for (name,) in rows)

    def _unwrapped(self, schema: str | None) -> dict[str, Any] | None:
        declared = msgspec.json.decode(schema) if schema else {}
        properties = declared.get("properties") if isinstance(declared, dict) else None
        names = properties if isinstance(properties, dict) else {}
        if is_value_too_deep(self.arguments) or (
            isinstance(self.arguments, str) and is_too_deep(self.arguments)
        ):
            self.errors.append(f"Arguments: nested deeper than {MAX_DEPTH} levels")
            return None
        if not isinstance(self.arguments, dict | str):
            words = f"Arguments: expected object, got {json_type(self.arguments)}"
            self.errors.append(words)
            return None
        # JSON allows lone surrogates, but columns cannot store them and engines reject them.
        arguments, layers = unwrapped(judgeable(self.arguments), names)
        if isinstance(self.arguments, str) and not layers:
            self.errors.append("Arguments: expected object, got string")
            return None
        if layers:
            self.warnings.append(f"Arguments were unwrapped from: {', '.join(layers)}")
        return arguments

    def _validated_by_server(self, digest: str | None, arguments: dict[str, Any]) -> Answer | None:
        """Return the server's own latest validation of the same tool, definition and arguments."""
        rows = self._rows(
            "SELECT valid, errors, warnings, answered_at FROM validations "
            "WHERE server = ? AND tool = ? AND definition IS NOT DISTINCT FROM ? "
            "AND arguments = ? AND valid IS NOT NULL ORDER BY answered_at DESC LIMIT 1",
            self.server,
            self.tool,
            digest,
            canonical(arguments),
        )
        if not rows:
            return None
        valid, errors, warnings, at = rows[0]
        errors, warnings = ([_shown(text) for text in texts or ()] for texts in (errors, warnings))
        return Answer(valid, errors, warnings, f"the server's own answer of {_day(at)}")

    def _unusual_values(self, arguments: dict[str, Any]) -> Iterator[Remark]:
        """Yield warnings about numbers and words that recent successful calls hardly ever used."""
        for name, value in arguments.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number and not (isinstance(value, str) and len(value) <= 40):
                continue
            place = pointer(name)
            (row,) = self._rows(
                "WITH worked AS (SELECT json_extract_string(arguments, ?) AS value FROM calls "
                "WHERE server = ? AND tool = ? AND outcome = 'ok' AND json_valid(arguments) "
                "ORDER BY requested_at DESC LIMIT ?) "
                "SELECT count(value) AS calls, count(DISTINCT value) AS kinds, "
                "min(try_cast(value AS DOUBLE)) AS low, max(try_cast(value AS DOUBLE)) AS high, "
                "count(*) FILTER (value = ?) AS same FROM worked",
                place,
                self.server,
                self.tool,
                RECENT,
                value if isinstance(value, str) else json.dumps(value),
            )
            calls, kinds, low, high, same = row
            if calls < MIN_CALLS:
                continue
            if is_number and low is not None and not low <= value <= high:
                words = f"{value} is outside the range of {calls} successful calls"
                yield Remark("warning", name, f"{words} ({low:g} to {high:g})")
            elif not is_number and not same and kinds <= calls // 10:
                words = f"{value!r} is none of the {kinds} values of {calls} successful calls"
                yield Remark("warning", name, words)

    def _earlier_use(self, schema: str | None, arguments: dict[str, Any]) -> Iterator[Remark]:
        """Yield remarks on whether paths, addresses, keys and tables worked when last used."""
        for name, value, what in _resources(schema, arguments):
            failed, worked = self._last_use(value, in_arguments=what != "the table")
            if failed and (worked is None or failed[0] >= worked[0]):
                at, tool, text = failed
                words = f"{what} {value!r} failed on {_day(at)} ({tool}: {_line(text)})"
                yield Remark("warning", name, words)
            elif worked:
                at, tool, _ = worked
                words = f"whether {what} {value!r} exists; it worked on {_day(at)} ({tool})"
                yield Remark("unchecked", name, words)
            elif what == "the table":
                yield Remark("unchecked", name, f"whether {what} {value!r} exists")

    def _last_use(self, value: str, *, in_arguments: bool) -> tuple[Any, Any]:
        """Return the last failed and the last successful call with a value.

        Each call is given as a tuple of time, tool and text, or as None if no call had the value.
        """
        quoted = json.dumps(value, ensure_ascii=False)
        within = quoted if in_arguments else quoted[1:-1]
        rows = self._rows(
            "SELECT outcome = 'ok' AS worked, requested_at, tool, error_text FROM calls "
            "WHERE server = ? AND tool IS NOT NULL AND contains(arguments, ?) "
            "AND (outcome = 'ok' OR contains(error_text, ?) "
            "OR (? AND error_category IN ('not_found', 'permission', 'auth', 'upstream'))) "
            "AND coalesce(error_category, '') NOT IN ('validation', 'cancelled') "
            "ORDER BY requested_at DESC LIMIT 1000",
            self.server,
            within,
            value,
            in_arguments,
        )
        failed = next((row[1:] for row in rows if not row[0]), None)
        worked = next((row[1:] for row in rows if row[0]), None)
        return failed, worked

    def _same_call(self, arguments: dict[str, Any]) -> Iterator[Remark]:
        """Yield a warning if the most recent identical call failed."""
        texts = {
            canonical(arguments),
            json.dumps(arguments),
            json.dumps(arguments, ensure_ascii=False),
        }
        rows = self._rows(
            "SELECT outcome, requested_at, error_text FROM calls WHERE server = ? AND tool = ? "
            "AND list_contains(?, arguments) AND outcome <> 'cancelled' "
            "ORDER BY requested_at DESC LIMIT 1",
            self.server,
            self.tool,
            sorted(texts),
        )
        for outcome, at, text in rows:
            if outcome != "ok":
                yield Remark("warning", "", f"The same call failed on {_day(at)}: {_line(text)}")

    def _time_range(self) -> str:
        ((first, last),) = self._rows(
            "SELECT min(requested_at) AS first, max(requested_at) AS last FROM calls "
            "WHERE server = ?",
            self.server,
        )
        return f"calls from {_day(first)} to {_day(last)}"


_KEY: Final = re.compile(
    r"(?i)(?:key(?!words?|board)|token|connection|dsn|host|database|account|profile)"
)
"""Matches the names of arguments whose values identify a resource, such as a connection."""


def _resources(schema: str | None, arguments: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, value and kind of each path, address, key and table in the arguments."""
    kinds = {each.path: each.kind for each in semantic_parameters(schema)} if schema else {}
    for name, value in arguments.items():
        if not isinstance(value, str) or not 2 <= len(value) <= 2000:
            continue
        kind = kinds.get((name,), "")
        if kind == "sql":
            for table in sorted(tables_in_sql(value))[:10]:
                yield name, table, "the table"
        elif kind == "path" or value.startswith(("/", "./", "../", "~/")):
            yield name, value, "the path"
        elif kind in ("url", "format:uri") or "://" in value[:12]:
            yield name, value, "the address"
        elif _KEY.search(name):
            yield name, value, f"the {name}"


def _day(at: datetime.datetime | None) -> str:
    return at.strftime("%Y-%m-%d") if at else "an unknown day"


def _line(text: str | None) -> str:
    """Return the first line of an error text, cut to 120 characters."""
    first = (text or "no reply").strip().partition("\n")[0]
    return first if len(first) <= 120 else first[:117] + "..."


def _shown(text: str) -> str:
    return clean_line(mask_and_cut(text, MAX_TEXT))
