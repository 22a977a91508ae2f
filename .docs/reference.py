# ruff: noqa: INP001, S101  (mkdocs loads this file by its path)
"""Reference pages that are made from the code when the site is built."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import get_args

import click
import polars as pl

import mcptally as mt
from mcptally import errors
from mcptally.analytics.compare import Comparison
from mcptally.analytics.views import displayed_columns, question_titles
from mcptally.cli import COMMANDS, cli
from mcptally.rules.reference_page import render_reference_page
from mcptally.tables.all_tables import TABLES


def tables() -> str:
    """Every table and column of a store."""
    parts = [
        (
            "# Tables of a store\n\n"
            "Each table is a Parquet dataset, and a view of the same name in SQL.\n\n"
            "The files of a table are `STORE/<table>/<number>-<run>.parquet`. `store.json` lists "
            "the live ones under `parts`, with size and SHA-256. A file that is not listed was "
            "left by a killed run, or belongs to a run that is about to end.\n"
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
    # What is in a list is named by its class.
    return names.get(dtype if isinstance(dtype, type) else type(dtype), "integer")


def predefined_questions() -> str:
    """The page of predefined questions."""
    lines = [
        "# Predefined questions\n",
        "Use `mcptally query STORE NAME`, `store.ask(NAME)`, or the view NAME in SQL.\n",
        "| question | answer | columns in a terminal |",
        "|---|---|---|",
    ]
    for name, title in question_titles().items():
        columns = ", ".join(f"`{c}`" for c in displayed_columns(name)) or "all columns"
        lines.append(f"| `{name}` | {title} | {columns} |")
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Every command's help, as the command prints it."""
    parts = [f"# Commands\n\n{_exit_codes()}"]
    context = click.Context(cli, info_name="mcptally")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        vars(command)["_help_option"] = None  # click keeps that of whoever asked first
        inner = click.Context(command, info_name=name, parent=context, terminal_width=88)
        help_text = command.get_help(inner)
        parts.append(f"## `mcptally {name}`\n\n{COMMANDS[name]}\n\n```text\n{help_text}\n```\n")
    return "\n".join(parts)


def _exit_codes() -> str:
    """The exit codes, as `errors.Exit` declares them."""
    said: dict[str, str] = {}
    (declared,) = ast.parse(inspect.getsource(errors.Exit)).body
    assert isinstance(declared, ast.ClassDef)
    for node in declared.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=last)]):
                said[last] = ""
            case ast.Expr(value=ast.Constant(value=str(words))) if said:
                said[next(reversed(said))] = words
    rows = [f"| {code.value} | {said[code.name]} |" for code in errors.Exit]
    head = (
        "Results go to stdout, messages to stderr. `record` exits with the exit code of its server "
        "(128 + signal;\n127 if the server cannot be started). All other commands have these exit "
        "codes:\n\n| exit code | meaning |\n|---|---|\n"
    )
    return head + "\n".join(rows) + "\n"


def library() -> str:
    """Every public name, with its signature and docstring."""
    parts = [
        (
            "# Library\n\n`import mcptally as mt`. Public names are imported on first use. "
            "Functions and commands with the same name\nhave the same behaviour.\n"
        )
    ]
    for name in sorted(mt.__all__, key=lambda name: (name[0].isupper(), name)):
        thing = getattr(mt, name)
        parts.append(f"## `{name}`\n\n{_called(f'mt.{name}', thing)}")
        if name == "Store":
            methods = [n for n in vars(thing) if not n.startswith("_")]
            parts += [
                f"### `Store.{method}`\n\n{_called(f'store.{method}', getattr(thing, method))}"
                for method in methods
            ]
    parts.append("## Result types\n\nThe functions above return these types.\n")
    parts += [f"### `{kind.__name__}`\n\n{_held(kind)}" for kind in _given_back()]
    tree = inspect.cleandoc(errors.__doc__ or "")
    parts.append(f"## Errors\n\nIn `mcptally.errors`.\n\n```text\n{tree}\n```\n")
    return "\n".join(parts)


def _given_back() -> list[type]:
    """Classes of ours that public functions return and the library page would not name."""
    public = [getattr(mt, name) for name in mt.__all__]
    found: dict[str, type] = {}
    for thing in [*public, *vars(mt.Store).values()]:
        back = inspect.signature(thing).return_annotation if callable(thing) else None
        # Some annotations are texts, so that what they name need not be loaded.
        kinds = [Comparison] if back == "Comparison" else [back, *get_args(back)]
        found |= {
            kind.__name__: kind
            for kind in kinds
            if isinstance(kind, type) and kind.__module__.startswith("mcptally")
        }
    return [found[name] for name in sorted(found) if found[name] not in public]


def _held(kind: type) -> str:
    """The docstrings of a class and of its public attributes."""
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    lines = [inspect.getdoc(kind) or "", ""]
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        said = ""
        if isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
            head = f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}"
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                said = inspect.cleandoc(str(after.value.value))
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            shown = node.name if node.decorator_list else f"{node.name}({_given(node)})"
            head = f"{shown}: {ast.unparse(node.returns)}" if node.returns else shown
            said = ast.get_docstring(node) or ""
        else:
            continue
        lines += [head, *(f"    {line}".rstrip() for line in said.splitlines())]
    return "```text\n" + "\n".join(lines).rstrip() + "\n```\n"


def _given(function: ast.FunctionDef) -> str:
    return ast.unparse(function.args).removeprefix("self").removeprefix(", ")


def _without_modules(head: str) -> str:
    """A signature without `self` and the modules of types; those differ between Pythons."""
    head = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", head)
    return head.replace("(self, ", "(").replace("(self)", "()")


def _called(name: str, thing: object) -> str:
    said = inspect.getdoc(thing) or ""
    head = name
    if callable(thing):
        signature = inspect.signature(thing)
        head += str(signature)
        if len(_without_modules(head)) > WIDE and len(signature.parameters) > 1:
            inner = [str(p) for p in signature.parameters.values() if p.name != "self"]
            # A star that says "by name from here on" is no parameter of its own.
            keyword = [p.kind is p.KEYWORD_ONLY for p in signature.parameters.values()]
            if any(keyword) and "*" not in "".join(i[0] for i in inner):
                inner.insert(len(inner) - sum(keyword), "*")
            back = signature.return_annotation
            end = "" if back is signature.empty else f" -> {inspect.formatannotation(back)}"
            head = "\n    ".join([f"{name}(", *(f"{i}," for i in inner)]) + f"\n){end}"
        head = _without_modules(head)
        head = re.sub(r"<function .*? at 0x[0-9a-f]+>", "...", head)
    return f"```text\n{head}\n\n{said}\n```\n"


WIDE = 88

PAGES: dict[str, Callable[[], str]] = {
    "tables.md": tables,
    "questions.md": predefined_questions,
    "commands.md": commands,
    "rules.md": render_reference_page,
    "library.md": library,
}
"""Name of the page below docs/reference → what makes it."""
