"""Restricts untrusted SQL to a single SELECT that can read only a store's tables.

`check_select` checks the statement; `lock` restricts what a connection can access.
"""

import json
import re
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import duckdb

from mcptally.analytics.spill import SpillFolder
from mcptally.errors import QueryError
from mcptally.store.manifest import as_pattern
from mcptally.tables.all_tables import TABLES

SPILL: Final = "20GB"
"""Maximum disk space that a store's queries may use for temporary data."""


_KIND: Final = re.compile(r"^[\w ]+ Error: ")
_NO_TABLE: Final = re.compile(r"Table with name (\S+) does not exist")
_NO_FILE: Final = re.compile(r'Cannot access (file|directory) "(.*?)" - file system operations .*')


def sql_problem(error: duckdb.Error) -> str:
    """Reword DuckDB's error message about a query, with its suggestion, on a single line."""
    lines = _KIND.sub("", f"{error}").splitlines()
    meant = next((line for line in lines[1:] if line.startswith("Did you mean")), "")
    said = _NO_TABLE.sub(r"no table is called '\1'", lines[0]).rstrip("!. ")
    said = _NO_FILE.sub(r"cannot read the \1 '\2', only the store's tables and questions", said)
    hint = f"; {meant[0].lower()}{meant[1:]}".replace('"', "") if meant else ""
    return f"SQL: {said[:1].lower()}{said[1:]}{hint}"


def lock(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> None:
    """Restrict a connection permanently to reading the tables of stores.

    The connection can no longer access other files, the network, extensions, Python variables or
    settings. Data that does not fit into memory goes to a spill folder of at most `SPILL`, which is
    removed together with the connection.

    Args:
        connection: the connection.
        paths: the folders of the stores.
    """
    spill = SpillFolder()
    weakref.finalize(connection, spill.remove)
    connection.execute("SET temp_directory = ?", [str(spill.path)])
    connection.execute("SET max_temp_directory_size = ?", [SPILL])
    folders = [path.resolve() / table.name for path in paths for table in TABLES]
    # DuckDB checks both the pattern in a query and the files that match the pattern.
    allowed = {f"{name}/" for folder in folders for name in (folder, as_pattern(folder))}
    connection.execute("SET allowed_directories = ?", [sorted(allowed)])
    connection.execute(
        "SET enable_external_access = false; SET python_enable_replacements = false; "
        "SET autoload_known_extensions = false; SET autoinstall_known_extensions = false; "
        "SET lock_configuration = true"  # this must be the last step
    )


_EXPLAIN: Final = re.compile(
    r"\s*EXPLAIN\s+(?:ANALYZE\s+)?(?=SELECT\b|WITH\b|FROM\b)", re.IGNORECASE
)


def check_select(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Check that SQL is a single SELECT, or EXPLAIN of one, without forbidden functions.

    Function names are taken from the syntax tree of DuckDB's own parser, so quotes, comments and
    unusual white space cannot hide a call.

    Raises:
        QueryError: the text is not a SELECT, contains several statements, or calls a function
            in `_FORBIDDEN`.
    """
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"the query is not valid UTF-8 at character {error.start + 1}; remove that character"
        ) from error
    explained = _EXPLAIN.match(query)
    select = query[explained.end() :] if explained else query
    try:
        types = [statement.type for statement in connection.extract_statements(select)]
    except duckdb.Error as error:
        raise QueryError(sql_problem(error)) from error
    if types != [duckdb.StatementType.SELECT]:
        raise QueryError("a query must be a single SELECT that changes nothing")
    try:
        with connection.cursor() as cursor:
            found = cursor.execute("SELECT json_serialize_sql(?)", [select]).fetchall()
    except duckdb.Error as error:
        raise QueryError(sql_problem(error)) from error
    tree: str = found[0][0]
    if tree.startswith('{"error":true'):
        raise QueryError(f"DuckDB cannot list the functions of this statement: {tree}")
    for name in _called(tree) & _FORBIDDEN:
        raise QueryError(
            f"{name}() is refused: it does something other than read the store's tables, or runs "
            "SQL from a text"
        )


_FORBIDDEN: Final = frozenset(
    {
        "checkpoint",
        "create_external_resource",
        "deregister_external_resource",
        "destroy_external_resource",
        "duckdb_external_resources",
        "force_checkpoint",
        "json_execute_serialized_sql",
        "query",
        "register_external_resource",
        "register_external_resource_type",
        "truncate_duckdb_logs",
        "write_log",
    }
)
"""Functions that have side effects in a SELECT, or that run SQL given as a string."""


_FUNCTION: Final = re.compile(r'"function_name":("(?:[^"\\]|\\.)*")')
"""Matches the name of a function in the JSON of a syntax tree. Strings in the statement cannot
match, because their quotes are escaped."""


def _called(tree: str) -> set[str]:
    """Return the names of all functions that a serialized statement calls, in lower case."""
    return {json.loads(name).lower() for name in _FUNCTION.findall(tree)}
