"""Counts references to columns by a literal name, which the type checker cannot check."""

import ast
from pathlib import Path

import pytest

import mcptally

UNDECLARED = 200
"""Maximum number of column references by a literal. Lower it whenever the number falls."""

OF_SERIES = frozenset(
    {"alias", "all", "any", "cast", "drop_nulls", "is_in", "is_not_null", "is_null", "len", "list"}
    | {"max", "min", "n_unique", "null_count", "str", "sum", "to_list", "to_numpy", "unique"}
)
"""Attributes of a series that shows that `frame["name"]` before it is a column."""


def literal(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_undeclared(node):
    """`pl.col("name")`, `frame.get_column("name")`, `frame[["name"]]` or `frame["name"].sum`."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name("pl"), attr="col"), args=[first, *_]):
            return literal(first)
        case ast.Call(func=ast.Attribute(attr="get_column"), args=[first, *_]):
            return literal(first)
        case ast.Subscript(slice=ast.List(elts=[_, *_] as names)):
            return all(map(literal, names))
        case ast.Attribute(value=ast.Subscript(slice=name), attr=attribute):
            return literal(name) and attribute in OF_SERIES
    return False


def undeclared(source):
    return sum(map(is_undeclared, ast.walk(ast.parse(source))))


@pytest.mark.slow
def test_columns_are_referred_to_by_their_declaration():
    files = Path(mcptally.__file__).parent.rglob("*.py")
    count = sum(undeclared(path.read_text(encoding="utf-8")) for path in files)
    assert count <= UNDECLARED, "refer to a column by its declaration, as in Calls.tool.col"
