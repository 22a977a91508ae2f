"""Reference pages that are generated from the code.

python -m tests.pages      writes them anew
"""

import sys
from collections.abc import Callable
from pathlib import Path

import click
import polars as pl

from mcptally.cli import COMMANDS, cli
from mcptally.query import questions, shown
from mcptally.rules.page import reference
from mcptally.schema import TABLES

DOCS = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- generated: python -m tests.pages -->\n"


def tables() -> str:
    """Every table and column of a store."""
    parts = [
        (
            f"{NOTE}# The tables of a store\n\n"
            "One Parquet dataset a table. In SQL they are views of the same names. Declared in "
            "`src/mcptally/schema.py`.\n"
        )
    ]
    for table in TABLES:
        rows = [
            f"| `{name}` | {_kind(column.dtype)} | {column.unit or ''} | {column.meaning} |"
            for name, column in table.columns().items()
        ]
        head = f"## `{table.name}`\n\n{table.meaning} Sorted by {', '.join(table.key)}.\n"
        parts.append(
            "\n".join([head, "| column | type | unit | meaning |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(parts) + "\n"


def _kind(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List):
        return f"list of {_kind(dtype.inner)}"
    if isinstance(dtype, pl.Datetime):
        return "timestamp (UTC)"
    names = {pl.String: "text", pl.Boolean: "boolean", pl.Float64: "double"}
    return names.get(type(dtype), "integer")


def standing_questions() -> str:
    """Every standing question."""
    lines = [
        f"{NOTE}# The standing questions\n",
        "`mcptally query STORE NAME`, `store.ask(NAME)`, or a view of that name in SQL.\n",
        "| question | what it answers | a table shows |",
        "|---|---|---|",
    ]
    for name, title in questions().items():
        columns = ", ".join(f"`{c}`" for c in shown(name)) or "all columns"
        lines.append(f"| `{name}` | {title} | {columns} |")
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Every command's help, as the command prints it."""
    parts = [f"{NOTE}# The commands\n"]
    context = click.Context(cli, info_name="mcptally")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, terminal_width=88)
        help_text = command.get_help(inner)
        parts.append(f"## `mcptally {name}`\n\n{COMMANDS[name]}\n\n```text\n{help_text}\n```\n")
    return "\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "tables.md": tables,
    "questions.md": standing_questions,
    "commands.md": commands,
    "rules.md": reference,
}


def main() -> int:
    DOCS.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(DOCS / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
