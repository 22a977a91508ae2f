"""Creates DuckDB views of a store's tables and of every question in `queries/*.sql`.

The first line of a question's file is a comment with the title. The second line, `-- Shows: a, b`,
names the columns that a terminal shows. The third line, `-- None: …`, says what an empty answer
means.

A file whose name starts with `_` defines a view that questions share. With the second line `-- Of:
per`, it defines a table macro with the parameter `per` instead; with `-- Value of: n`, a scalar
macro with the parameter `n`.
"""

import contextlib
import functools
import graphlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

import duckdb

from mcptally.analytics.contrasts import is_masked
from mcptally.analytics.filters import ORDER, predicates
from mcptally.errors import QueryError, StoreError, UsageError, as_argument
from mcptally.seeds.validation_protocol import sql_functions as validation_sql_functions
from mcptally.statistics import sql_functions
from mcptally.statistics.contrasts import MIN_CALLS
from mcptally.store.manifest import LiveFiles, as_pattern
from mcptally.tables.all_tables import TABLES
from mcptally.tables.calls import Calls
from mcptally.tables.findings import Findings
from mcptally.tables.outcomes import sql_macros
from mcptally.tables.recordings import Recordings
from mcptally.tables.tools import Tools
from mcptally.tables.usage import Usage
from mcptally.tables.usage_sums import calls_sql, usage_sql

ARCHIVE_VIEWS: Final = MappingProxyType(
    {f"_archive_{table.name}": table.name for table in (Calls, Findings, Recordings, Tools, Usage)}
)
"""Maps the names of views with all rows to their tables. The views with the tables' own names
contain only the rows that filters select."""


# fmt: off
Question = Literal[
    "affected_calls", "change_points", "client_mistakes", "clients", "context_cost",
    "contrasts", "definition_advice", "drift", "elicitations", "error_groups", "error_shapes",
    "fault_categories", "finding_counts", "flaky", "hidden_errors", "latency",
    "latency_histogram", "preventable_failures", "priorities", "protocol_versions",
    "repeatability", "repeated_failures", "retry_loops", "schema_advice", "schema_violations",
    "seed_server_scores", "seed_tool_scores", "server_scores", "servers", "sessions",
    "slowest_calls", "timeline", "tool_scores", "unlisted_names", "unused_tools",
    "validator_honesty",
]
# fmt: on
"""Names of the predefined questions, for completion in editors."""


@functools.cache
def question_titles() -> Mapping[str, str]:
    """Map each predefined question's name to its title."""
    return {
        name: text.splitlines()[0].removeprefix("-- ")
        for name, text in all_texts().items()
        if not name.startswith("_")
    }


def displayed_columns(question: str) -> list[str]:
    """Return the columns of a question's answer that a terminal shows; empty for all columns."""
    for line in all_texts()[question].splitlines()[:2]:
        if line.startswith("-- Shows: "):
            return line.removeprefix("-- Shows: ").split(", ")
    return []


def meaning_of_no_rows(question: str) -> str:
    """Return what an empty answer to a question means, or "no rows" for SQL and tables."""
    for line in all_texts().get(question, "").splitlines()[:3]:
        if line.startswith("-- None: "):
            return line.removeprefix("-- None: ")
    return "no rows"


@functools.cache
def answer_columns(question: str) -> Mapping[str, str]:
    """Map each column of a question's answer to its DuckDB type; this needs no store."""
    with connect() as connection:
        for table in TABLES:
            connection.register(table.name, table.empty().to_arrow())
        create_questions(connection, texts_of(question))
        answer = connection.sql(f'FROM "{question}"')
        return {name: kind.id for name, kind in zip(answer.columns, answer.types, strict=True)}


@functools.cache
def all_texts() -> Mapping[str, str]:
    """Map the name of each question, shared view and macro to its SQL."""
    folder = resources.files("mcptally.analytics").joinpath("queries")
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda f: f.name
    )
    written = {f.name.removesuffix(".sql"): f.read_text(encoding="utf-8") for f in files}
    return written | {
        "_tool_calls": f"-- Calls to tools, with what is derived from each.\n{calls_sql()}",
        "_usage": f"-- The rows of `usage`, computed from calls.\n{usage_sql('_tool_calls')}",
        "_enough_calls": "-- Whether a group of calls is large enough for a contrast.\n"
        f"-- Value of: units\nunits >= {MIN_CALLS}",
        _NUMBER_OF_CALLS: _number_of_calls("(SELECT count(*) FROM calls)"),
        **sql_macros(),
        **{view: f"-- All rows.\nSELECT * FROM {name}" for view, name in ARCHIVE_VIEWS.items()},
    }


_NUMBER_OF_CALLS: Final = "_number_of_calls"
"""Name of the macro that returns the number of calls that filters select."""


def _number_of_calls(sql: int | str) -> str:
    return f"-- The number of calls.\n-- Value of: \n{sql}"


def without_filters(
    connection: duckdb.DuckDBPyConnection, texts: Mapping[str, str]
) -> dict[str, str]:
    """Return texts with macros that are faster if no filters apply.

    DuckDB skips rows of `calls` while it reads them if it compares them with a number, but not if
    it compares them with the result of a subquery. And if filters select all calls, the calls that
    were read once need not be read again.
    """
    faster = dict(texts)
    if _NUMBER_OF_CALLS in texts:
        [(calls,)] = connection.execute("SELECT count(*) FROM calls").fetchall()
        faster[_NUMBER_OF_CALLS] = _number_of_calls(calls)
        faster["_unfiltered"] = "-- The same calls.\n-- Of: read\nFROM query_table(read)"
    if "_tool_sessions" in texts:
        faster["_tool_sessions"] = _COUNTED_SESSIONS
    return faster


_COUNTED_SESSIONS: Final = (
    "-- The same counts, from `usage`.\n"
    "SELECT hash(server) AS server_hash, hash(hash(server), hash(tool)) AS tool_hash, "
    "hash(session) AS session_hash, calls, ok, "
    "ok + hidden_errors + tool_errors + protocol_errors + timeouts + no_responses AS ended, "
    "first_call AS started, last_call AS latest FROM usage"
)
"""SQL of `_tool_sessions` if no filters apply."""


IN_UTC: Final = "SET GLOBAL TimeZone = 'UTC'"
"""Statement that makes DuckDB use UTC instead of the machine's time zone; `GLOBAL` includes
cursors."""


def connect(memory: str | None = None) -> duckdb.DuckDBPyConnection:
    """Open an empty in-memory database with the functions that questions use.

    Args:
        memory: DuckDB's memory limit, such as `2GB`; by default four fifths of the machine's
            memory.

    Raises:
        UsageError: `memory` is not a size.
    """
    connection = duckdb.connect()
    if memory is not None:
        try:
            connection.execute("SET memory_limit = ?", [memory])
        except duckdb.Error:
            raise UsageError(f"memory {memory!r} is not a size; write 2GB or 500MB") from None
    # DuckDB writes its progress bar to stdout, among the results. In a notebook without ipywidgets,
    # this setting raises an exception.
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    connection.execute(IN_UTC)
    # A question reads the same files many times.
    connection.execute("SET parquet_metadata_cache = true")
    # This optimizer pass takes 0.5 of the 0.7 s in which DuckDB 2.0 optimises `priorities`
    # (docs/design/questions.md).
    connection.execute("SET disabled_optimizers = 'projection_pullup'")
    sql_functions.register(connection)
    validation_sql_functions.register(connection)
    connection.create_function("is_masked", is_masked, ["VARCHAR", "VARCHAR"], "BOOLEAN")
    return connection


@contextlib.contextmanager
def reporting_the_version(path: Path, made_by: str | None) -> Iterator[None]:
    """Convert DuckDB errors about missing columns to an error that states the store's version.

    Args:
        path: folder of the store.
        made_by: the version of mcptally that wrote the store.

    Raises:
        StoreError: the store lacks a column.
    """
    try:
        yield
    except (duckdb.BinderException, duckdb.CatalogException) as error:
        line = str(error).partition("\n")[0]
        raise StoreError(
            f"{path}: was written by mcptally {made_by} and cannot be read; rebuild it "
            f"with: mcptally score ARCHIVE -o {as_argument(path)} ({line})"
        ) from error


def create_tables(
    connection: duckdb.DuckDBPyConnection,
    files: LiveFiles,
    filters: Collection[str] = (),
    names: Collection[str] = ORDER,
) -> set[str]:
    """Create views of a store's tables, restricted to the rows that filters select.

    Args:
        connection: the connection to create the views in.
        files: maps tables to the store's live files.
        filters: names of filters, whose values each cursor sets as variables.
        names: names of the tables; must be all tables if there are filters.

    Returns:
        The names in `all_texts` that are now views.

    Raises:
        StoreError: a table is missing or damaged.
        QueryError: the connection's memory limit is too small to read the files.
    """
    wanted = [(name, name) for name in ORDER if name in names]
    if filters:
        # `usage` aggregates all calls, so compute it again from the selected calls.
        wanted.remove((Usage.name, Usage.name))
        wanted += [(view, name) for view, name in ARCHIVE_VIEWS.items()]
    for view, name in wanted:
        where = "true" if view != name else " AND ".join(predicates(name, filters)) or "true"
        try:
            connection.execute(
                f'CREATE VIEW "{view}" AS SELECT * FROM {_reading(files[name])} WHERE {where}'
            )
        except duckdb.OutOfMemoryException as error:
            raise QueryError(
                f"the memory limit is too small to open the store: {str(error).splitlines()[0]}"
            ) from error
        except duckdb.Error as error:
            place = files[name][0].parent.parent
            raise StoreError(
                f"{place}: table {name} is damaged: {str(error).splitlines()[0]}; rebuild it "
                "with: mcptally score ARCHIVE -o STORE"
            ) from error
    if not filters:
        return set()
    texts = {name: text for name, text in texts_of("_usage").items() if name not in ARCHIVE_VIEWS}
    create_questions(connection, texts | {Usage.name: "SELECT * FROM _usage"})
    return texts.keys() | ARCHIVE_VIEWS.keys()


def _reading(files: Sequence[Path]) -> str:
    """Return an SQL expression that reads several files as one table."""
    names = ", ".join("'" + as_pattern(path).replace("'", "''") + "'" for path in files)
    return f"read_parquet([{names}])"


def texts_read_by(question: str) -> dict[str, str]:
    """Return the SQL of each question, view and macro that a question may read, keyed by name."""
    return {name: text for name, text in texts_of(question).items() if name != question}


def texts_of(question: str) -> dict[str, str]:
    """Return the SQL of a question and of all that it may read, keyed by name."""
    text = all_texts()[question]
    found: dict[str, str] = {}
    for name in sorted(_names_read(text) & all_texts().keys()):
        found |= texts_of(name)
    return found | {question: text}


def texts_kept(question: str) -> dict[str, str]:
    """Return the SQL of a question whose answer is kept, and of all that it may read.

    It reads the kept answers of other questions.
    """
    texts = texts_of(question)
    if "_tool_changes" in texts:
        texts |= texts_of("change_points")
        texts["_tool_changes"] = (
            "-- From the kept answer.\n-- Of: used\n"
            "SELECT hash(hash(server), hash(tool)) AS tool_hash, changed_at FROM change_points "
            "WHERE level = 'tool' AND direction = 'worse' AND next_change IS NULL"
        )
    return texts


def texts_read(query: str) -> Mapping[str, str]:
    """Return the SQL of each question, view and macro that a query reads, keyed by name.

    These are the ones that the query names where SQL usually names tables, and all that they read.
    A query that reads DuckDB's catalog may read all questions.
    """
    folded = query.casefold()
    if _READS_CATALOG.search(folded):
        return all_texts()
    named = {name for pair in _TABLE_OR_MACRO.findall(folded) for name in pair}
    found: dict[str, str] = {}
    for name in sorted(named & all_texts().keys()):
        found |= texts_of(name)
    return found


_TABLE_OR_MACRO: Final = re.compile(r'(?:\b(?:from|join)\s+|,\s*)(?:\w+\.)*"?(\w+)|\b(_\w+)\(')


def reads_any_of(tables: Collection[str], texts: Iterable[str], query: str = "") -> bool:
    """Return whether the SQL of questions, or a query, mentions one of the tables.

    Args:
        tables: names of tables.
        texts: SQL of questions.
        query: any SQL; if it reads DuckDB's catalog, it may read all tables.
    """
    folded = query.casefold()
    return (
        _READS_CATALOG.search(folded) is not None
        or any(name in folded for name in tables)
        or any(not _names_read(text).isdisjoint(tables) for text in texts)
    )


_READS_CATALOG: Final = re.compile(r"duckdb_|information_schema|pg_catalog|sqlite_master|pragma_")


def _names_read(text: str) -> set[str]:
    """Return the names of views, tables and macros that SQL may read, except its own CTEs."""
    named = set(re.findall(r"\b(?:FROM|JOIN)\s+(\w+)|\b(_\w+)\(", text))
    own = re.findall(r"\b(\w+) AS (?:NOT )?(?:MATERIALIZED )?\(", text)
    return {name for pair in named for name in pair} - set(own)


def create_questions(
    connection: duckdb.DuckDBPyConnection, texts: Mapping[str, str], *, computed: bool = False
) -> None:
    """Create questions as views, or as tables.

    Args:
        connection: a connection with the tables as views.
        texts: maps names to SQL, for the questions and for all that they read and that does not
            exist yet.
        computed: whether to create tables that contain the questions' rows, instead of views.

    Raises:
        StoreError: a question reads something that does not exist.
    """
    if left := _create_what_binds(connection, texts, computed=computed):
        name, error = next(iter(left.items()))
        raise StoreError(f"the question {name} cannot be created: {error}") from error


def _created_object(name: str, text: str, *, computed: bool) -> str:
    """Return the words between CREATE and a question's SQL, such as `VIEW "latency" AS`."""
    second = text.splitlines()[1] if "\n" in text else ""
    if second.startswith("-- Value of: "):
        return f'MACRO "{name}"({second.removeprefix("-- Value of: ")}) AS'
    if second.startswith("-- Of: "):
        # Create a macro, so that DuckDB computes only the level that is requested.
        return f'MACRO "{name}"({second.removeprefix("-- Of: ")}) AS TABLE'
    kind = "TABLE" if computed and not name.startswith("_") else "VIEW"
    return f'{kind} "{name}" AS'


def create_plain_questions(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Create the questions that need only DuckDB's own functions.

    Returns the names of the other questions.
    """
    return list(_create_what_binds(connection, all_texts()))


def _create_what_binds(
    connection: duckdb.DuckDBPyConnection, texts: Mapping[str, str], *, computed: bool = False
) -> dict[str, duckdb.CatalogException]:
    """Create views and macros in the order of their dependencies; map names to errors.

    If a text fails, the texts that read it get the same error and are not tried.
    """
    missing: dict[str, duckdb.CatalogException] = {}
    reads = {name: _names_read(text) & (texts.keys() - {name}) for name, text in texts.items()}
    for name in graphlib.TopologicalSorter(reads).static_order():
        if unbound := sorted(reads[name] & missing.keys()):
            missing[name] = missing[unbound[0]]
            continue
        try:
            created = _created_object(name, texts[name], computed=computed)
            connection.execute(f"CREATE {created} {texts[name]}")
        except duckdb.CatalogException as error:
            missing[name] = error
    return missing
