"""Checks the meaning of arguments (URLs, paths, cron, SQL, formats) without executing anything.

The schema determines which parameters have a meaning that can be checked. DuckDB parses SQL but
never runs it.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import duckdb
import jsonschema_rs

from mcptally.redaction.key_patterns import words
from mcptally.seeds.validation_protocol import cron
from mcptally.wire.json_text import json_value


class Remark(NamedTuple):
    """What a dry run reports about one argument."""

    level: str
    """`error`, `warning`, or `unchecked` for what cannot be checked offline."""
    name: str
    """The argument's name, or "" if the remark is about the whole call."""
    message: str


class SemanticParameter(NamedTuple):
    """A parameter whose meaning can be checked."""

    path: tuple[str, ...]
    """The member names that lead to the parameter; `*` stands for every item in a list."""
    kind: str
    """`url`, `path`, `cron`, `schedule`, `sql`, `tool`, or `format:NAME`."""


MAX_DEPTH: Final = 5
"""Maximum nesting of the parameters that are checked."""

MAX_TEXT: Final = 20_000
"""Maximum length in characters of a value that is checked."""

MAX_NESTED: Final = 200
"""Maximum nesting of parentheses in SQL that is parsed: the time that DuckDB takes grows with the
square of the depth."""

_FORMATS: Final = words(
    "date date-time time duration email idn-email hostname ipv4 ipv6 uuid uri uri-reference iri "
    "json-pointer regex"
)
_URL: Final = re.compile(r"(?i)(?:^|_)(?:url|uri|href|endpoint|webhook)$")
_PATH: Final = re.compile(
    r"(?i)(?:^|_)(?:path|file|file_?name|file_?path|dir|directory|folder|cwd|root|source_?path"
    r"|destination)$"
)
_CRON: Final = re.compile(r"(?i)(?:^|_)cron(?:_?(?:expr(?:ession)?|schedule|string|tab))?$")
_SCHEDULE: Final = re.compile(r"(?i)(?:^|_)schedule$")
_SQL: Final = re.compile(r"(?i)(?:^|_)sql(?:_?(?:query|statement|text))?$")
_QUERY: Final = re.compile(r"(?i)(?:^|_)(?:query|statement)$")
_TOOL: Final = re.compile(r"(?i)^(?:tool|tool_?name)$")
_SAYS_SQL: Final = re.compile(r"\bSQL\b|\bSELECT\b")
_SNAKE: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-.\s]+")


@functools.lru_cache(maxsize=4096)
def semantic_parameters(schema: str) -> tuple[SemanticParameter, ...]:
    """Return the parameters of an inputSchema whose meaning can be checked.

    Returns an empty result if the text is not JSON.
    """
    return tuple(dict.fromkeys(_parameters(json_value(schema), ())))


def _parameters(schema: Any, path: tuple[str, ...]) -> Iterator[SemanticParameter]:
    if not isinstance(schema, dict) or len(path) > MAX_DEPTH:
        return
    for variants in ("anyOf", "oneOf", "allOf"):
        for inner in _list(schema.get(variants)):
            yield from _parameters(inner, path)
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        yield from _parameters(inner, (*path, name))
    if isinstance(schema.get("items"), dict):
        yield from _parameters(schema["items"], (*path, "*"))
    if path and _may_be_text(schema):
        kind = _kind(path, schema)
        if kind:
            yield SemanticParameter(path, kind)


def _may_be_text(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type")
    return "string" in _list(kinds) or kinds in ("string", None)


def _kind(path: tuple[str, ...], schema: Mapping[str, Any]) -> str | None:
    name = next((part for part in reversed(path) if part != "*"), "")
    snake = _SNAKE.sub("_", name).lower()
    plural = snake[:-1] if path[-1] == "*" and snake.endswith("s") else snake
    description = f"{schema.get('title', '')} {schema.get('description', '')}"
    format_ = schema.get("format")
    if format_ == "cron" or _CRON.search(plural):
        return "cron"
    if isinstance(format_, str) and format_ in _FORMATS:
        return f"format:{format_}"
    kinds: tuple[tuple[str, bool], ...] = (
        ("schedule", _SCHEDULE.search(plural) is not None),
        ("sql", _SQL.search(plural) is not None),
        ("sql", bool(_QUERY.search(plural) and _SAYS_SQL.search(description))),
        ("url", _URL.search(plural) is not None),
        ("path", _PATH.search(plural) is not None),
        ("tool", _TOOL.search(plural) is not None),
    )
    return next((kind for kind, holds in kinds if holds), None)


def semantic_remarks(
    schema: str, arguments: Any, *, tools: frozenset[str] = frozenset()
) -> Iterator[Remark]:
    """Yield remarks on the meaning of a call's arguments.

    Args:
        schema: the tool's inputSchema, as JSON text.
        arguments: the arguments of a call.
        tools: names of the tools that the server lists; empty if unknown.
    """
    for parameter in semantic_parameters(schema):
        for name, value in _values(arguments, parameter.path, ""):
            if isinstance(value, str) and len(value) <= MAX_TEXT:
                yield from _remarks(parameter.kind, name, value, tools)


def _remarks(kind: str, name: str, value: str, tools: frozenset[str]) -> Iterator[Remark]:
    if kind == "tool":
        yield from _tool(name, value, tools)
    elif kind.startswith("format:"):
        format_ = kind.partition(":")[2]
        if not _format_validator(format_).is_valid(value):
            yield Remark("error", name, f"does not have the format {format_}: {_short(value)}")
        elif format_ in ("uri", "iri"):
            yield Remark("unchecked", name, f"whether {_short(value)} answers")
    else:
        yield from _CHECKS[kind](name, value)


def errors(schema: str, arguments: Any) -> list[Remark]:
    """Return the remarks with level `error`."""
    return [remark for remark in semantic_remarks(schema, arguments) if remark.level == "error"]


def _values(value: Any, path: tuple[str, ...], name: str) -> Iterator[tuple[str, Any]]:
    if not path:
        yield name, value
    elif path[0] == "*":
        for number, item in enumerate(_list(value)[:100]):
            yield from _values(item, path[1:], f"{name}[{number}]")
    elif isinstance(value, dict) and path[0] in value:
        yield from _values(value[path[0]], path[1:], f"{name}.{path[0]}" if name else path[0])


@functools.cache
def _format_validator(format_: str) -> Any:
    return jsonschema_rs.validator_for({"format": format_}, validate_formats=True)


def _url(name: str, value: str) -> Iterator[Remark]:
    if not value.strip():
        yield Remark("error", name, "is empty, not a URL")
        return
    try:
        parts = urlsplit(value.strip())
        port = parts.port
    except ValueError as error:
        yield Remark("error", name, f"is not a URL: {_short(value)} ({error})")
        return
    if re.search(r"\s", value.strip()) or port == 0:
        yield Remark("error", name, f"is not a URL: {_short(value)}")
    elif not parts.scheme or "." in parts.scheme:
        yield Remark("warning", name, f"has no scheme such as https: {_short(value)}")
    elif parts.scheme in ("http", "https", "ws", "wss", "ftp") and not parts.hostname:
        yield Remark("error", name, f"is a URL without a host: {_short(value)}")
    elif parts.scheme not in ("http", "https") and _NEARLY_HTTP.match(parts.scheme):
        yield Remark("error", name, f"has the unknown scheme {parts.scheme!r}: {_short(value)}")
    else:
        yield Remark("unchecked", name, f"whether {_short(value)} answers")


_NEARLY_HTTP: Final = re.compile(r"(?:h?t{1,3}p{0,2}s{0,2}|htps?|hhtps?|https?s|htttps?)\Z")


def _path(name: str, value: str) -> Iterator[Remark]:
    if "\0" in value:
        yield Remark("error", name, "contains a NUL character, which no path may contain")
    elif value.strip():
        yield Remark("unchecked", name, f"whether the path {_short(value)} exists")


def _cron(name: str, value: str) -> Iterator[Remark]:
    problem = cron.syntax_error(value)
    if problem:
        yield Remark("error", name, f"is not a cron expression: {_short(value)} ({problem})")


def _schedule(name: str, value: str) -> Iterator[Remark]:
    if cron.looks_like(value):
        yield from _cron(name, value)


def _tool(name: str, value: str, tools: frozenset[str]) -> Iterator[Remark]:
    if not re.match(r"[A-Za-z0-9_.\-/:]{1,128}\Z", value):
        yield Remark("error", name, f"is not a valid tool name: {_short(value)}")
    elif tools and value.rpartition(":")[2] not in tools:
        yield Remark("warning", name, f"the server lists no tool {_short(value)}")


_OTHER_SQL: Final = re.compile(
    r"`|\[\w+\]|@\w|(?<![:\w]):\w|\bLIMIT\s+\d+\s*,|\bTOP\s+\d|\bPRAGMA\b|\bSHOW\b|\bDESCRIBE\b"
    r"|\bENGINE\s*=|\bAUTO_INCREMENT\b|\bAUTOINCREMENT\b|\bREPLACE\s+INTO\b|\bMERGE\b|\bDECLARE\b|\bGO\b"
    r"|\bDELIMITER\b|\bMATCH\b|\bEXEC(?:UTE)?\b|%s|%\(|\{\{|\$\w",
    re.IGNORECASE,
)
"""Matches syntax of other SQL dialects, which DuckDB's parser may reject."""


def _sql(name: str, value: str) -> Iterator[Remark]:
    if not value.strip():
        yield Remark("error", name, "is empty, not SQL")
        return
    if _nesting(value) > MAX_NESTED:
        yield Remark("unchecked", name, "the syntax of SQL with such deeply nested parentheses")
        return
    problem = sql_syntax_error(value)
    if problem and _OTHER_SQL.search(value):
        yield Remark("unchecked", name, "the syntax of this dialect of SQL")
    elif problem:
        yield Remark("error", name, f"Invalid SQL syntax: {problem}")
    if re.search(r"(?i)\bselect\s+(?:distinct\s+)?\*", value):
        yield Remark("warning", name, "SELECT * may be slow on large tables; name the columns")


def _nesting(text: str) -> int:
    """Return the maximum nesting of parentheses in a string."""
    steps = (1 if mark == "(" else -1 for mark in re.findall(r"[()]", text))
    return max(itertools.accumulate(steps), default=0)


@functools.lru_cache(maxsize=4096)
def sql_syntax_error(text: str) -> str | None:
    """Return DuckDB's message about SQL that it cannot parse, or None; nothing is executed."""
    try:
        _parser().extract_statements(text)
    except duckdb.Error as error:
        first = str(error).partition("\n")[0]
        return first.removeprefix("Parser Error: ")[:100]
    return None


@functools.cache
def _parser() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"enable_external_access": False})


_CHECKS: Final[Mapping[str, Callable[[str, str], Iterator[Remark]]]] = {
    "url": _url,
    "path": _path,
    "cron": _cron,
    "schedule": _schedule,
    "sql": _sql,
}


def _short(value: str) -> str:
    return repr(value if len(value) <= 80 else value[:77] + "...")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def tables_in_sql(text: str) -> set[str]:
    """Return the names of the tables in SQL, or an empty set if DuckDB cannot parse the SQL."""
    if _nesting(text) > MAX_NESTED:
        return set()
    try:
        return set(_parser().get_table_names(text))
    except duckdb.Error:
        return set()
