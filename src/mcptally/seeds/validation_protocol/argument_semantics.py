"""What arguments mean, as far as it can be known without running anything.

A schema is read once into a plan: which of its parameters are URLs, paths, cron expressions, SQL
or names of tools, and which have a format. SQL is parsed by DuckDB and never run.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import duckdb
import jsonschema_rs
import msgspec

from mcptally.seeds.validation_protocol import cron


class Remark(NamedTuple):
    """What is to be said of one argument."""

    level: str
    """`error`, `warning`, or `unchecked`: what cannot be known offline."""
    name: str
    words: str


class Checked(NamedTuple):
    """A parameter that is worth a look: where it is in the arguments, and what it means."""

    path: tuple[str, ...]
    """Names of members; `*` stands for every item of a list."""
    kind: str
    """`url`, `path`, `cron`, `schedule`, `sql`, `tool`, or `format:NAME`."""


MAX_DEPTH: Final = 5
"""Members within members beyond which parameters are not looked for."""

MAX_TEXT: Final = 20_000
"""Characters beyond which a value is not read."""

MAX_NESTED: Final = 200
"""Parentheses that may be open at a time in SQL that is parsed: DuckDB takes the square of it."""

_FORMATS: Final = frozenset(
    [
        "date",
        "date-time",
        "time",
        "duration",
        "email",
        "idn-email",
        "hostname",
        "ipv4",
        "ipv6",
        "uuid",
        "uri",
        "uri-reference",
        "iri",
        "json-pointer",
        "regex",
    ]
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
def plan(schema: str) -> tuple[Checked, ...]:
    """The parameters of an inputSchema (JSON text) that are worth a look; none if it is no JSON."""
    try:
        value = msgspec.json.decode(schema)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ()
    return tuple(dict.fromkeys(_planned(value, ())))


def _planned(schema: Any, path: tuple[str, ...]) -> Iterator[Checked]:
    if not isinstance(schema, dict) or len(path) > MAX_DEPTH:
        return
    for variants in ("anyOf", "oneOf", "allOf"):
        for inner in _list(schema.get(variants)):
            yield from _planned(inner, path)
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        yield from _planned(inner, (*path, name))
    if isinstance(schema.get("items"), dict):
        yield from _planned(schema["items"], (*path, "*"))
    if path and _may_be_text(schema):
        kind = _kind(path, schema)
        if kind:
            yield Checked(path, kind)


def _may_be_text(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type")
    return "string" in _list(kinds) or kinds in ("string", None)


def _kind(path: tuple[str, ...], schema: Mapping[str, Any]) -> str | None:
    name = next((part for part in reversed(path) if part != "*"), "")
    snake = _SNAKE.sub("_", name).lower()
    plural = snake[:-1] if path[-1] == "*" and snake.endswith("s") else snake
    told = f"{schema.get('title', '')} {schema.get('description', '')}"
    form = schema.get("format")
    if form == "cron" or _CRON.search(plural):
        return "cron"
    if isinstance(form, str) and form in _FORMATS:
        return f"format:{form}"
    kinds: tuple[tuple[str, bool], ...] = (
        ("schedule", _SCHEDULE.search(plural) is not None),
        ("sql", _SQL.search(plural) is not None),
        ("sql", bool(_QUERY.search(plural) and _SAYS_SQL.search(told))),
        ("url", _URL.search(plural) is not None),
        ("path", _PATH.search(plural) is not None),
        ("tool", _TOOL.search(plural) is not None),
    )
    return next((kind for kind, holds in kinds if holds), None)


def remarks(
    schema: str, arguments: Any, *, tools: frozenset[str] = frozenset()
) -> Iterator[Remark]:
    """What is to be said of arguments; `tools` are the names that the server lists, if known."""
    for checked in plan(schema):
        for name, value in _values(arguments, checked.path, ""):
            if isinstance(value, str) and len(value) <= MAX_TEXT:
                yield from _remarks(checked.kind, name, value, tools)


def _remarks(kind: str, name: str, value: str, tools: frozenset[str]) -> Iterator[Remark]:
    if kind == "tool":
        yield from _tool(name, value, tools)
    elif kind.startswith("format:"):
        form = kind.partition(":")[2]
        if not _of_format(form).is_valid(value):
            yield Remark("error", name, f"is no {form}: {_short(value)}")
        elif form in ("uri", "iri"):
            yield Remark("unchecked", name, f"whether {_short(value)} answers")
    else:
        yield from _CHECKS[kind](name, value)


def errors(schema: str, arguments: Any) -> list[Remark]:
    """The remarks that refuse a call."""
    return [remark for remark in remarks(schema, arguments) if remark.level == "error"]


def _values(value: Any, path: tuple[str, ...], name: str) -> Iterator[tuple[str, Any]]:
    if not path:
        yield name, value
    elif path[0] == "*":
        for number, item in enumerate(_list(value)[:100]):
            yield from _values(item, path[1:], f"{name}[{number}]")
    elif isinstance(value, dict) and path[0] in value:
        yield from _values(value[path[0]], path[1:], f"{name}.{path[0]}" if name else path[0])


@functools.cache
def _of_format(form: str) -> Any:
    return jsonschema_rs.validator_for({"format": form}, validate_formats=True)


def _url(name: str, value: str) -> Iterator[Remark]:
    if not value.strip():
        yield Remark("error", name, "is empty, not a URL")
        return
    try:
        parts = urlsplit(value.strip())
        port = parts.port
    except ValueError as error:
        yield Remark("error", name, f"is no URL: {_short(value)} ({error})")
        return
    if re.search(r"\s", value.strip()) or port == 0:
        yield Remark("error", name, f"is no URL: {_short(value)}")
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
        yield Remark("error", name, "holds a NUL character: no path does")
    elif value.strip():
        yield Remark("unchecked", name, f"whether the path {_short(value)} exists")


def _cron(name: str, value: str) -> Iterator[Remark]:
    words = cron.fault(value)
    if words:
        yield Remark("error", name, f"is no cron expression: {_short(value)} ({words})")


def _schedule(name: str, value: str) -> Iterator[Remark]:
    if cron.looks_like(value):
        yield from _cron(name, value)


def _tool(name: str, value: str, tools: frozenset[str]) -> Iterator[Remark]:
    if not re.match(r"[A-Za-z0-9_.\-/:]{1,128}\Z", value):
        yield Remark("error", name, f"is no name of a tool: {_short(value)}")
    elif tools and value.rpartition(":")[2] not in tools:
        yield Remark("warning", name, f"no tool is called {_short(value)} on this server")


_OTHER_SQL: Final = re.compile(
    r"`|\[\w+\]|@\w|(?<![:\w]):\w|\bLIMIT\s+\d+\s*,|\bTOP\s+\d|\bPRAGMA\b|\bSHOW\b|\bDESCRIBE\b"
    r"|\bENGINE\s*=|\bAUTO_INCREMENT\b|\bAUTOINCREMENT\b|\bREPLACE\s+INTO\b|\bMERGE\b|\bDECLARE\b|\bGO\b"
    r"|\bDELIMITER\b|\bMATCH\b|\bEXEC(?:UTE)?\b|%s|%\(|\{\{|\$\w",
    re.IGNORECASE,
)
"""What other dialects of SQL write, and DuckDB's parser does not read."""


def _sql(name: str, value: str) -> Iterator[Remark]:
    if not value.strip():
        yield Remark("error", name, "is empty, not SQL")
        return
    if _nested(value) > MAX_NESTED:
        yield Remark("unchecked", name, "SQL of so many parentheses within each other")
        return
    fault = sql_fault(value)
    if fault and _OTHER_SQL.search(value):
        yield Remark("unchecked", name, "the syntax of this dialect of SQL")
    elif fault:
        yield Remark("error", name, f"Invalid SQL syntax: {fault}")
    if re.search(r"(?i)\bselect\s+(?:distinct\s+)?\*", value):
        yield Remark("warning", name, "SELECT * may be slow on large tables; name the columns")


def _nested(text: str) -> int:
    """How many parentheses are open at a time."""
    steps = (1 if mark == "(" else -1 for mark in re.findall(r"[()]", text))
    return max(itertools.accumulate(steps), default=0)


@functools.lru_cache(maxsize=4096)
def sql_fault(text: str) -> str | None:
    """What DuckDB's parser says of SQL that it cannot read. Nothing is run."""
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


def tables(text: str) -> set[str]:
    """The tables that SQL names; none where the parser does not read it."""
    if _nested(text) > MAX_NESTED:
        return set()
    try:
        return set(_parser().get_table_names(text))
    except duckdb.Error:
        return set()
