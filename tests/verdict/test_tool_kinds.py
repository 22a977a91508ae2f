"""A tool's kind follows from its name, description and arguments."""

import polars as pl
import pytest

from mcptally.verdict import tool_kinds


def kind(name: str, description: str | None, *arguments: str) -> str | None:
    schema = "{" + ", ".join(f'"{each}": {{}}' for each in arguments) + "}"
    columns = {"name": [name], "arguments": [schema], "about": [description]}
    frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
    found = frame.select(tool_kinds.kind(*map(pl.col, columns))).item()
    if description is None:
        assert frame.select(tool_kinds.kind(pl.col("name"), pl.col("arguments"))).item() == found
    return found


@pytest.mark.parametrize(
    ("expected", "name", "description", "arguments"),
    [
        ("program", "run_code", None, ["language", "code"]),
        ("program", "executeCell", None, ["cell"]),
        ("program", "calculate", "Evaluates a Python expression", ["expression"]),
        ("shell", "run_command", None, ["command", "cwd"]),
        ("query", "query", None, ["sql"]),
        ("query", "mysql_query", None, ["query"]),
        ("query", "ask", "Runs a SQL query and returns rows", ["query"]),
        ("browser", "puppeteer_click", None, ["selector"]),
        ("search", "web_search", None, ["q"]),
        ("web", "fetch", "Fetches a URL as Markdown", ["url"]),
        ("files", "read_text_file", None, ["path"]),
        (None, "apply_voucher", "Applies a voucher to a booking", ["code"]),
        (None, "query_task", "Returns tasks", ["query"]),
        (None, "add", None, ["a", "b"]),
    ],
)
def test_the_kind_of_a_tool(expected, name, description, arguments):
    assert kind(name, description, *arguments) == expected
