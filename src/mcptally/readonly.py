"""What SQL from others may be: one SELECT, which calls nothing that acts.

What it can reach is the connection's affair: see `query.lock`.
"""

import itertools
import re
from typing import Final

import duckdb

from mcptally.errors import QueryError

_EXPLAIN: Final = re.compile(
    r"\s*EXPLAIN\s+(?:ANALYZE\s+)?(?=SELECT\b|WITH\b|FROM\b)", re.IGNORECASE
)


def check_select(query: str) -> None:
    """See that a text is one SELECT (or EXPLAIN of one); views of a store are never changed."""
    explained = _EXPLAIN.match(query)
    try:
        found = duckdb.extract_statements(query[explained.end() :] if explained else query)
    except duckdb.Error as error:
        raise QueryError(f"{error}") from error
    if [statement.type for statement in found] != [duckdb.StatementType.SELECT]:
        raise QueryError("a store answers one SELECT at a time, and nothing that changes anything")
    for name in _called(query) & _ACTING:
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


def _called(query: str) -> set[str]:
    """Names that stand before a parenthesis, without quotes: those of every function called."""
    tokens = [
        (at, kind) for at, kind in duckdb.tokenize(query) if kind != duckdb.token_type.comment
    ]
    ends = [at for at, _ in tokens[1:]] + [len(query)]
    texts = [query[at:end] for (at, _), end in zip(tokens, ends, strict=True)]
    return {
        re.split(r"\s|/\*|--", name.strip(), maxsplit=1)[0].strip('"').lower()
        for name, after in itertools.pairwise(texts)
        if after.startswith("(")
    }
