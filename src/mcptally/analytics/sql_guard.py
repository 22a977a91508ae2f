"""What SQL from others may do: read a store's tables, by one SELECT, which calls nothing that acts.

`check_select` looks at the text; `lock` takes everything else out of the connection's reach.
"""

import json
import re
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import duckdb

from mcptally.analytics.spill import SpillFolder
from mcptally.analytics.union import as_pattern
from mcptally.errors import QueryError
from mcptally.tables.all_tables import TABLES

SPILL: Final = "20GB"
"""What queries of a store may put on the disk while they run."""


def lock(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path]) -> None:
    """Let a connection read the stores' tables and nothing else, for good.

    No other file, no network, no extension, no variable of the Python that runs it, no settings.
    What does not fit into memory goes to a folder of our own, up to `SPILL`, and is gone with us.
    """
    aside = SpillFolder()
    weakref.finalize(connection, aside.remove)
    connection.execute("SET temp_directory = ?", [str(aside.path)])
    connection.execute("SET max_temp_directory_size = ?", [SPILL])
    folders = [path.resolve() / table.name for path in paths for table in TABLES]
    # Both the pattern that is asked for and the files that it finds are looked up here.
    allowed = {f"{name}/" for folder in folders for name in (folder, as_pattern(folder))}
    connection.execute("SET allowed_directories = ?", [sorted(allowed)])
    for setting, value in (
        ("enable_external_access", "false"),
        ("python_enable_replacements", "false"),
        ("autoload_known_extensions", "false"),
        ("autoinstall_known_extensions", "false"),
        ("lock_configuration", "true"),  # last
    ):
        connection.execute(f"SET {setting} = {value}")


_EXPLAIN: Final = re.compile(
    r"\s*EXPLAIN\s+(?:ANALYZE\s+)?(?=SELECT\b|WITH\b|FROM\b)", re.IGNORECASE
)


def check_select(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """See that a text is one SELECT (or EXPLAIN of one); views of a store are never changed.

    The functions that it calls are read from the tree that DuckDB's own parser makes of it. Quotes,
    comments, letters of any script and the many characters that DuckDB takes for blanks hide none.

    Raises:
        QueryError: it is none, several, or one that calls a function that acts.
    """
    explained = _EXPLAIN.match(query)
    select = query[explained.end() :] if explained else query
    try:
        select.encode()
        types = [statement.type for statement in duckdb.extract_statements(select)]
    except (duckdb.Error, UnicodeEncodeError) as error:
        raise QueryError(f"{error}") from error
    if types != [duckdb.StatementType.SELECT]:
        raise QueryError("a store answers one SELECT at a time, and nothing that changes anything")
    try:
        with connection.cursor() as cursor:
            found = cursor.execute("SELECT json_serialize_sql(?)", [select]).fetchall()
    except duckdb.Error as error:
        raise QueryError(f"{error}") from error
    tree: str = found[0][0]
    if tree.startswith('{"error":true'):
        raise QueryError(f"DuckDB cannot say what this statement calls: {tree}")
    for name in _called(tree) & _ACTING:
        raise QueryError(
            f"{name}() does something else than read the store's tables, or hides what it does"
        )


_ACTING: Final = frozenset(
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
"""Functions that a SELECT can call and that act, or run SQL that stands in a text."""


_FUNCTION: Final = re.compile(r'"function_name":("(?:[^"\\]|\\.)*")')
"""A name in the JSON of a tree; a text in the statement cannot look so, its quotes are escaped."""


def _called(tree: str) -> set[str]:
    """Names of every function that a serialized statement calls."""
    return {json.loads(name).lower() for name in _FUNCTION.findall(tree)}
