"""`mcptally query`: standing questions by name, or any SQL."""

import sys
from pathlib import Path

import click

from mcptally.cli.options import of_calls, raw
from mcptally.cli.quantity import SIZE
from mcptally.errors import UsageError, near

FORMATS = ("table", "json", "csv", "parquet", "markdown")


@click.command(name="query")
@click.argument("store", type=click.Path(path_type=Path))
@click.argument("question", required=False)
@of_calls
@click.option(
    "--min-calls", type=click.IntRange(min=1), help="Only rows that rest on so many calls."
)
@click.option(
    "--with",
    "more",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="STORE",
    help="Another store, read as if it were one with the first. May be repeated.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Print so many rows at the most; 0: all. A table in a terminal: 50.",
)
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), help="Stop an answer that takes longer."
)
@click.option("--memory", type=SIZE, help="What DuckDB may take, as in 4G.")
@click.option(
    "--keep",
    is_flag=True,
    help="Put the answers that need mcptally's statistics into STORE/mcptally.duckdb, as tables.",
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="table", help="How to print rows."
)
@raw
def command(
    store: Path,
    question: str | None,
    *,
    server: str | None,
    tool: str | None,
    since: str | None,
    until: str | None,
    client: str | None,
    min_calls: int | None,
    more: tuple[Path, ...],
    limit: int | None,
    seconds: float | None,
    memory: float | None,
    keep: bool,
    form: str,
    raw: bool,
) -> None:
    """Ask a store a standing question by name, or any SQL.

    Without a question it lists the ones there are. The tables (calls, findings, tools and others;
    SHOW TABLES lists them) and every question are views in SQL, which reads the store and nothing
    else. STORE/mcptally.duckdb, made by the first query, has the same views for any DuckDB client
    that is started in STORE (or told: SET file_search_path = 'STORE').

    \b
    Examples:
      mcptally query store tool_scores
      mcptally query store latency --server git --since 7d --min-calls 20
      mcptally query store "SELECT tool, error_text FROM calls WHERE verdict = 'tool_failure'"
      mcptally query store server_scores --format json
    """
    from mcptally.analytics import duckdb_file
    from mcptally.analytics.store import open_store, steadily
    from mcptally.analytics.views import questions, shown
    from mcptally.errors import QueryError
    from mcptally.output import render

    limit_of_memory = None if memory is None else f"{memory / 1e6:.0f}MB"
    opened = open_store(store, *more, memory=limit_of_memory)
    filters = {
        "server": server,
        "tool": tool,
        "since": since,
        "until": until,
        "client": client,
        "min_calls": min_calls,
    }
    if keep:
        kept = ", ".join(duckdb_file.keep(store))
        sys.stderr.write(f"{store / duckdb_file.FILE} has the tables {kept}\n")
    else:
        duckdb_file.refresh(store)
    if question is None:
        width = max(map(len, questions()))
        for name, title in questions().items():
            sys.stdout.write(f"{name:<{width}}  {title}\n")
        return
    standing = question in questions()
    if not standing and len(question.split()) < 2 and "(" not in question:
        hint = near(question, questions())
        raise QueryError(
            f"no question is called {question!r}{hint} (mcptally query {store} lists them)"
        )
    given = [name for name, value in filters.items() if value is not None]
    if not standing and given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{flags} go with a standing question; SQL says it with WHERE")
    limit = render.default_limit(form) if limit is None else limit  # type: ignore[arg-type]
    columns = shown(question) if standing else []

    def answer() -> None:
        found = opened.ask(question, **filters) if standing else opened.sql(question)  # type: ignore[arg-type]
        render.write(found, form, shown=columns, limit=limit, raw=raw)  # type: ignore[arg-type]

    with opened.within(seconds, rows=limit and limit + 1):
        steadily([opened], answer)
