"""`mcptally query`: standing questions by name, or any SQL."""

import sys
from pathlib import Path

import click

from mcptally.errors import near

FORMATS = ("table", "json", "csv", "parquet", "markdown")


@click.command(name="query")
@click.argument("store", type=click.Path(path_type=Path))
@click.argument("question", required=False)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="table", help="How to print rows."
)
def command(store: Path, question: str | None, form: str) -> None:
    """Ask a store a standing question by name, or any SQL.

    Without a question it lists the ones there are. The tables calls, messages, findings, tools
    and recordings, and every question, are views in SQL.

    \b
    Examples:
      mcptally query store tool_scores
      mcptally query store "SELECT tool, error_text FROM calls WHERE verdict = 'tool_failure'"
      mcptally query store server_scores --format json
    """
    from mcptally import render
    from mcptally.query import open_store, questions, shown

    opened = open_store(store)
    if question is None:
        width = max(map(len, questions()))
        for name, title in questions().items():
            sys.stdout.write(f"{name:<{width}}  {title}\n")
        return
    if " " not in question.strip() and question not in questions():
        from mcptally.errors import QueryError

        hint = near(question, questions())
        raise QueryError(
            f"no question is called {question!r}{hint} (mcptally query {store} lists them)"
        )
    known = question in questions()
    answer = opened.ask(question) if known else opened.sql(question)
    columns = shown(question) if known else ()
    render.write(answer, form, shown=columns)  # type: ignore[arg-type]  # click checked it
