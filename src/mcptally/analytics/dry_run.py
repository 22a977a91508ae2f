"""A dry run of a call against a store: the validation protocol offline, without side effects.

What the server itself once answered for the same tool, definition and arguments takes precedence.
Otherwise three phases: the schema, what the arguments mean, and what the archive has seen of the
paths, tables, keys and addresses in them. What cannot be known offline is named as unchecked.
"""

import dataclasses
import datetime
import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from mcptally.analytics.store import Store, steadily
from mcptally.errors import near
from mcptally.jsonschemas.validators import kind
from mcptally.redaction.display import clean, sanitised
from mcptally.seeds.inspector import javascript
from mcptally.seeds.validation_logic.arguments import unwrapped
from mcptally.seeds.validation_protocol import argument_semantics, schema_errors
from mcptally.seeds.validation_protocol.argument_semantics import Remark
from mcptally.seeds.validation_protocol.texts import canonical
from mcptally.seeds.violation import pointer
from mcptally.wire.nesting import MAX_DEPTH, is_too_deep, is_value_too_deep, with_stack_room

FEW: Final = 5
"""Calls that worked from which the range of their values says something."""

RECENT: Final = 10_000
"""Calls of a tool, the latest, that are looked at for the values that worked."""

SHOWN: Final = 300
"""Characters of a text of somebody else that are shown."""


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a dry run, and where it comes from."""

    valid: bool
    errors: list[str]
    warnings: list[str]
    source: str

    def to_json(self) -> str:
        """Exactly `{valid, errors, warnings}`."""
        told = {"valid": self.valid, "errors": self.errors, "warnings": self.warnings}
        return json.dumps(told, ensure_ascii=False)


@with_stack_room
def validate(store: Store, *, server: str, tool: str, arguments: Any) -> Answer:
    """Whether a call would be accepted, as far as it can be known without making it.

    Args:
        store: what is known.
        server: label of the server, or the name it gives itself.
        tool: name of the tool.
        arguments: what it would be called with; a wrapped or textual object is unwrapped.
    """
    return steadily([store], lambda: _Run(store, server, tool, arguments).answer(), whole=True)


class _Run:
    """One dry run: what is asked, and what is found on the way."""

    def __init__(self, store: Store, server: str, tool: str, arguments: Any) -> None:
        self.store = store
        self.server, self.tool, self.given = server, tool, arguments
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def answer(self) -> Answer:
        label = self._label()
        if label is None:
            return self._made("names of servers")
        self.server = label
        definition = self._definition()
        if definition is None and self.errors:
            return self._made("definitions of the server's tools")
        digest, schema = definition or (None, None)
        arguments = self._arguments(schema)
        if arguments is None:
            return self._made("the arguments themselves")
        if native := self._native(digest, arguments):
            return native
        remarks = []
        if schema is None:
            words = "arguments against their schema (no definition of the tool was recorded)"
            remarks.append(Remark("unchecked", "", words))
        else:
            remarks += schema_errors.remarks(schema, arguments)
            remarks += argument_semantics.remarks(schema, arguments, tools=self._tools())
        remarks += self._range(arguments)
        evidence = list(self._evidence(schema, arguments))
        known = {remark.name for remark in evidence}
        for remark in remarks:
            # What the archive has seen of a value says more than that it is unchecked.
            if remark.level != "unchecked" or remark.name not in known:
                self._tell(remark)
        for remark in [*evidence, *self._same(arguments)]:
            self._tell(remark)
        return self._made(f"definition {digest}, {self._span()}" if digest else self._span())

    def _tell(self, remark: Remark) -> None:
        if remark.level == "unchecked":
            self.warnings.append(_shown(f"Unchecked offline: {remark.words}"))
        elif remark.words == "Missing required parameter":
            self.errors.append(_shown(f"{remark.words}: {remark.name}"))
        else:
            about = f'Parameter "{remark.name}": ' if remark.name else ""
            told = self.errors if remark.level == "error" else self.warnings
            told.append(_shown(about + remark.words))

    def _made(self, source: str) -> Answer:
        errors, warnings = (list(dict.fromkeys(told)) for told in (self.errors, self.warnings))
        return Answer(not errors, errors, warnings, source)

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        # Arrow, because fetchall() wants pytz for times.
        rows = self.store.sql(sql, params=list(values)).to_arrow_table().to_pylist()
        return [tuple(row.values()) for row in rows]

    def _label(self) -> str | None:
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
            words = f"{', '.join(sorted(named))} call themselves {self.server}; name one of them"
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

    def _arguments(self, schema: str | None) -> dict[str, Any] | None:
        declared = msgspec.json.decode(schema) if schema else {}
        properties = declared.get("properties") if isinstance(declared, dict) else None
        names = properties if isinstance(properties, dict) else {}
        if is_value_too_deep(self.given) or (
            isinstance(self.given, str) and is_too_deep(self.given)
        ):
            self.errors.append(f"Arguments: nested deeper than {MAX_DEPTH} levels")
            return None
        if not isinstance(self.given, dict | str):
            words = f"Arguments: expected object, got {kind(self.given)}"
            self.errors.append(words)
            return None
        # Half a character, which JSON can spell, is in no column and no engine takes it.
        arguments, layers = unwrapped(javascript.judgeable(self.given), names)
        if isinstance(self.given, str) and not layers:
            self.errors.append("Arguments: expected object, got string")
            return None
        if layers:
            self.warnings.append(f"Arguments were unwrapped from: {', '.join(layers)}")
        return arguments

    def _native(self, digest: str | None, arguments: dict[str, Any]) -> Answer | None:
        """What the server itself said of the same tool, definition and arguments, most lately."""
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

    def _range(self, arguments: dict[str, Any]) -> Iterator[Remark]:
        """Numbers outside, and words other than, those of calls that worked."""
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
            if calls < FEW:
                continue
            if is_number and low is not None and not low <= value <= high:
                words = f"{value} is outside the range of {calls} calls that worked"
                yield Remark("warning", name, f"{words} ({low:g} to {high:g})")
            elif not is_number and not same and kinds <= calls // 10:
                words = f"{value!r} is none of the {kinds} values of {calls} calls that worked"
                yield Remark("warning", name, words)

    def _evidence(self, schema: str | None, arguments: dict[str, Any]) -> Iterator[Remark]:
        """What the archive last saw of the paths, addresses, keys and tables in the arguments."""
        for name, value, what in _resources(schema, arguments):
            failed, worked = self._seen(value, in_arguments=what != "the table")
            if failed and (worked is None or failed[0] >= worked[0]):
                at, tool, text = failed
                words = f"{what} {value!r} failed on {_day(at)} ({tool}: {_line(text)})"
                yield Remark("warning", name, words)
            elif worked:
                at, tool, _ = worked
                words = f"whether {what} {value!r} is there; it worked on {_day(at)} ({tool})"
                yield Remark("unchecked", name, words)
            elif what == "the table":
                yield Remark("unchecked", name, f"whether {what} {value!r} exists")

    def _seen(self, value: str, *, in_arguments: bool) -> tuple[Any, Any]:
        """The last failure about a value and the last success with it: (when, tool, text)."""
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

    def _same(self, arguments: dict[str, Any]) -> Iterator[Remark]:
        """The same call, if it was made and failed when it was made last."""
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

    def _span(self) -> str:
        ((first, last),) = self._rows(
            "SELECT min(requested_at) AS first, max(requested_at) AS last FROM calls "
            "WHERE server = ?",
            self.server,
        )
        return f"calls from {_day(first)} to {_day(last)}"


_KEY: Final = re.compile(
    r"(?i)(?:key(?!words?|board)|token|connection|dsn|host|database|account|profile)"
)
"""In the name of an argument that names a resource by a key."""


def _resources(schema: str | None, arguments: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, value and kind of what a call relies on: paths, addresses, keys, tables."""
    kinds = {each.path: each.kind for each in argument_semantics.plan(schema)} if schema else {}
    for name, value in arguments.items():
        if not isinstance(value, str) or not 2 <= len(value) <= 2000:
            continue
        kind = kinds.get((name,), "")
        if kind == "sql":
            for table in sorted(argument_semantics.tables(value))[:10]:
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
    """The first line of an error, short."""
    first = (text or "no reply").strip().partition("\n")[0]
    return first if len(first) <= 120 else first[:117] + "..."


def _shown(text: str) -> str:
    return clean(sanitised(text, SHOWN))
