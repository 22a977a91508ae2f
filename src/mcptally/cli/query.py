"""The command `mcptally query`: answers predefined questions and SQL."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from mcptally.cli.options import RAW, STORE, FormatChoice, call_filters
from mcptally.cli.quantity import SECONDS, SIZE, size_text
from mcptally.errors import UsageError, as_argument, near
from mcptally.output.formats import ANSWERS

if TYPE_CHECKING:
    from mcptally.analytics.store import Store


def _questions(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of questions that complete a word, with their titles as help."""
    from mcptally.analytics.views import question_titles

    return [
        CompletionItem(name, help=title)
        for name, title in question_titles().items()
        if name.startswith(incomplete)
    ]


@click.command(name="query")
@STORE
@click.argument("question", required=False, shell_complete=_questions)
@call_filters
@click.option(
    "--min-calls",
    type=click.IntRange(min=1),
    help="Only rows that are based on at least this many calls.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Maximum number of rows; 0: all. Default: 50 for a table in a terminal, otherwise all.",
)
@click.option("--seconds", type=SECONDS, help="Time limit for the answer.")
@click.option("--memory", type=SIZE, help="Memory limit of DuckDB, as in 4G.")
@click.option(
    "--keep",
    is_flag=True,
    help="Save answers that plain DuckDB cannot compute as tables in STORE/mcptally.duckdb.",
)
@click.option(
    "--format", "form", type=FormatChoice(ANSWERS), default="table", help="Output format."
)
@RAW
def command(
    store: Path,
    question: str | None,
    *,
    limit: int | None,
    seconds: float | None,
    memory: float | None,
    keep: bool,
    form: str,
    raw: bool,
    **filters: Any,
) -> None:
    """Answer a predefined question, show a table, or run SQL on a store.

    Without a question, the command lists all predefined questions. In SQL, the tables (calls,
    findings, tools and others; SHOW TABLES lists them) and all questions are views; SQL can only
    read the store. The first query writes STORE/mcptally.duckdb, which has the same views for other
    DuckDB clients.

    \b
    Examples:
      mcptally query store tool_scores
      mcptally query store findings
      mcptally query store latency --server git --since 7d --min-calls 20
      mcptally query store "SELECT tool, error_text FROM calls WHERE verdict = 'tool_failure'"
      mcptally query store server_scores --format json
    """
    from mcptally.analytics import duckdb_file
    from mcptally.analytics.store import open_store, retry_if_replaced
    from mcptally.analytics.views import displayed_columns, meaning_of_no_rows, question_titles
    from mcptally.errors import QueryError
    from mcptally.output import render
    from mcptally.tables.all_tables import TABLES

    limit_of_memory = None if memory is None else size_text(memory)
    opened = open_store(store, memory=limit_of_memory, masked=not raw)
    if keep:
        kept = ", ".join(duckdb_file.write_with_answers(store))
        sys.stderr.write(f"{store / duckdb_file.FILE} has the tables {kept}\n")
    else:
        duckdb_file.refresh(store)
    if question is None:
        width = max(map(len, question_titles()))
        for name, title in question_titles().items():
            sys.stdout.write(f"{name:<{width}}  {title}\n")
        return
    predefined = question in question_titles()
    tables = [table.name for table in TABLES]
    is_table = question in tables
    if not predefined and len(question.split()) < 2 and "(" not in question:
        if question not in tables:
            hint = near(question, [*question_titles(), *tables])
            raise QueryError(
                f"no question or table is called {question!r}{hint} "
                f"(mcptally query {as_argument(store)} lists the questions)"
            )
        question = f'SELECT * FROM "{question}"'
    given = [name for name, value in filters.items() if value is not None]
    if not predefined and given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{flags} cannot be used with SQL; use WHERE instead")
    limit = render.default_limit(form) if limit is None else limit
    columns = displayed_columns(question) if predefined else []
    empty = "no rows with these filters" if given else meaning_of_no_rows(question)
    # Counting the rows of arbitrary SQL may take long; with limits, not all rows are computed.
    counts = (predefined or is_table) and seconds is None and memory is None

    def answer() -> None:
        found = opened.ask(question, **filters) if predefined else opened.sql(question)
        render.write(found, form, shown=columns, limit=limit, counts=counts, empty=empty)
        if form == "table" and question in {"tool_scores", "server_scores"}:
            _write_reviewed(opened, filters)

    with opened.within(seconds, rows=limit and limit + 1):
        retry_if_replaced([opened], answer)


def _write_reviewed(store: "Store", filters: dict[str, Any]) -> None:
    """Print the reviewed sample's failure rate for the chosen server and tool to stderr."""
    from mcptally.review.place import file_of_store

    file = file_of_store(store.manifest, store.path)
    if file is None or not file.exists():
        return
    from mcptally.analytics.reviewing import failure_rate_in_words

    given = {name: value for name, value in filters.items() if value is not None}
    if not given.keys() - {"server", "tool"} and (
        words := failure_rate_in_words(store, file=file, **given)
    ):
        sys.stderr.write(f"calls that {words}\n")
