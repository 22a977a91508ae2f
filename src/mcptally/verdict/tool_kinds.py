"""Determines the kind of a tool whose results may contain text from elsewhere.

A tool that runs a program, a query or a browser returns errors caused by the caller's input. A tool
that reads files, pages or search results returns texts about errors. The kind follows from the
tool's name, description and argument names.
"""

from typing import Final

import msgspec
import polars as pl

from mcptally.tables.arrow import matches

_RUNS: Final = r"\b(?:run|execut|evaluat|eval|interpret|invok)\w*"
_SQL: Final = "sql|cypher|mongo|redis|sqlite|postgres|duckdb|bigquery|influx|prometheus|graphql"


class _Kind(msgspec.Struct, frozen=True):
    """A kind of tool, and the patterns by which such tools are recognised."""

    kind: str
    name: str = ""
    """Pattern that a word or several words of the tool's name must match."""
    within: str = ""
    """Pattern that may match anywhere in the tool's name."""
    description: str = ""
    arguments: str = ""
    """Pattern for the name of an argument that a tool of this kind must have; empty if none is
    required."""

    def fits(self, name: pl.Expr, arguments: pl.Expr, description: pl.Expr | None) -> pl.Expr:
        """Return an expression that is true if a tool is of this kind."""
        words = rf"(?:^|[_\-./ ])(?:{self.name})(?:$|[_\-./ ])"
        of_name = f"(?i){words}|{self.within}" if self.within else f"(?i){words}"
        found = matches(name, of_name).fill_null(value=False)
        if self.description and description is not None:
            found |= matches(description, f"(?i){self.description}").fill_null(value=False)
        if self.arguments:
            member = rf'(?i)"(?:{self.arguments})"\s*:'
            found &= matches(arguments, member).fill_null(value=False)
        return found


_KINDS: Final = (
    _Kind(
        "browser",
        name="click|navigate|hover|screenshot|snapshot",
        within="browser|puppeteer|playwright|selenium|chrome|devtools|web_?page",
        description=r"\b(?:browser|web ?page|dom|css selector|puppeteer|playwright|headless)\b",
    ),
    _Kind(
        "program",
        name=r"run|exec\w*|eval\w*|interpret\w*|repl|python|javascript|js|node|code|cell|script"
        r"|notebook|sandbox|compile",
        description=rf"{_RUNS} .{{0,60}}\b(?:code|scripts?|cells?|programs?|python|javascript"
        r"|expressions?|snippets?)\b",
        arguments=r"code|source_?code|script|program|snippet|cell_?source|cell|python_?code|js_?code"
        r"|javascript|expression|function",
    ),
    _Kind(
        "shell",
        name=r"run|exec\w*|shell|terminal|bash|command|cmd|process|ssh|powershell|cli",
        description=rf"{_RUNS} .{{0,60}}\b(?:commands?|shell|process|terminal)\b",
        arguments="command|cmd|commands|shell_?command|command_?line|bash|argv",
    ),
    _Kind(
        "query",
        name=r"(?:read|write|run|exec\w*|select|raw)_?query|database|db",
        within=f"{_SQL}|^query$",
        description=r"\b(?:sql|cypher|promql|graphql|sparql|aggregation pipeline|database"
        r"|(?:select|insert|update) (?:statement|query|queries))\b",
        arguments="sql|sql_?query|query|queries|statements?|cypher|promql|jql|soql|kql|sparql|aql"
        "|graphql|pipeline|aggregation",
    ),
    _Kind(
        "search",
        name=r"search\w*|find|lookup|grep|look_?up|discover",
        within="search$",
        description=r"^\W*(?:\w+ ){0,3}search(?:es)?\b|\bfull[- ]text search\b|\bweb search\b",
        arguments="query|q|keywords?|search|search_?term|search_?query|term|pattern|text",
    ),
    _Kind(
        "web",
        name=r"fetch|scrape\w*|crawl\w*|http|request|curl|read_?url|extract|visit|browse",
        within="markdownify",
        description=r"\b(?:fetch|scrape|crawl|retrieve|download|http request)\w*\b.{0,60}"
        r"\b(?:url|page|website|html|web)\b",
        arguments="ur[il]s?|link|href|page_?url|web_?page",
    ),
    _Kind(
        "files",
        name=r"(?:read|write|edit|list|get|move|copy|delete|search|view|open|create|append|tail|cat)"
        r"_.*(?:files?|director\w*|folders?|notes?|documents?|paths?)|files?|directory|fs|ls|cat|logs?",
        description=r"\b(?:read|write|list|return|get|edit)s? .{0,40}"
        r"\b(?:files?|director(?:y|ies)|folders?|documents?)\b",
        arguments="paths?|file_?paths?|files?|file_?names?|director(?:y|ies)|folder|dir|root",
    ),
)
"""All kinds, in the order in which they are tried."""

KINDS: Final = tuple(each.kind for each in _KINDS)
"""Names of all kinds, in the same order."""
_READ: Final = 300
"""Number of characters at the start of a description that are searched for keywords."""


def kind(name: pl.Expr, arguments: pl.Expr, description: pl.Expr | None = None) -> pl.Expr:
    """Return an expression for a tool's kind: one of `KINDS`, or null for other tools.

    Args:
        name: the tool's name.
        arguments: JSON text with the argument names: the tool's input schema, or a call's
            arguments.
        description: the tool's description; None if it is not known.
    """
    # Split camel case, so that `executeCode` has the same words as `execute_code`.
    words = name.str.replace_all(r"([a-z0-9])([A-Z])", "${1}_${2}")
    about = None if description is None else description.str.head(_READ)
    return pl.coalesce(
        pl.when(each.fits(words, arguments, about)).then(pl.lit(each.kind)) for each in _KINDS
    )
