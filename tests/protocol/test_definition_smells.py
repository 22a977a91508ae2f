"""Smells of definitions whose schemas are odd, large, or documented in prose."""

import json
from typing import Any

import polars as pl
import pytest

from mcptally.protocol.definition_arguments import arguments_of
from mcptally.protocol.definition_smells import REFERRING_ARGUMENTS, find_smells


def smells(schema: Any, description: str = "Does something useful with it.") -> pl.DataFrame:
    """The findings about one definition."""
    about = {"definition": "d", "tool": "t", "description": description}
    definitions = pl.DataFrame(
        [about | {"input_schema": json.dumps(schema)}], schema_overrides={"description": pl.String}
    )
    places = pl.DataFrame({"server": ["s"], "tool": ["t"], "definition": ["d"]})
    described = places.join(definitions.drop("tool"), on="definition")
    return find_smells(places, definitions, described)


@pytest.mark.parametrize(
    "member",
    [
        *(1, None, "x", [], {"type": [1, None, "string"]}, {"type": {"a": 1}}),
        *({"description": 5}, {"anyOf": "x"}, {"anyOf": [1, {"$ref": 5}, {"$ref": "#/$defs/q"}]}),
        *({"$ref": "#/$defs/q", "default": 1}, {"examples": "x"}, {"allOf": [[]]}),
        *({"pattern": "[", "default": "x"}, {"type": "int", "default": 1}),
    ],
)
def test_a_schema_of_any_shape_can_be_examined(member: Any) -> None:
    names = ("a", "b/c~", "", "*")
    for required in (None, "a", [1], ["a"]):
        schema = {
            "properties": dict.fromkeys(names, member),
            "required": required,
            "$defs": {"q": {"$ref": "#/$defs/q"}},
        }
        found = smells(schema, "a (x): *\n- b: what")
        assert set(found["path"].drop_nulls()) <= {
            *("/inputSchema/properties/a", "/inputSchema/properties/b~1c~0"),
            *("/inputSchema/properties/", "/inputSchema/properties/*", "/description"),
        }


def test_examples_of_arguments_with_references_are_checked_up_to_a_limit() -> None:
    refers = {"$ref": "#/$defs/text", "default": 1}
    schema = {
        "properties": {f"p{n}": refers for n in range(REFERRING_ARGUMENTS + 1)},
        "$defs": {"text": {"type": "string"}},
    }
    rules = smells(schema)["rule"]
    assert (rules == "definition.example_invalid").sum() == REFERRING_ARGUMENTS


@pytest.mark.parametrize(
    ("line", "described"),
    [
        ("when: the first day", True),
        ("    when (str, optional): the first day", True),
        ("- `when` - the first day", True),
        ("Returns when: the day", False),
        ("Call it when needed: always", False),
        ("other: when", False),
        ("Note: when it ends", False),
    ],
)
def test_a_line_of_the_description_that_begins_with_the_name_documents_an_argument(
    line: str, *, described: bool
) -> None:
    schema = json.dumps({"properties": {"when": {"type": "string"}, "other": {}}})
    rows = pl.DataFrame([{"definition": "d", "description": line, "input_schema": schema}])
    found = arguments_of(rows).filter(pl.col("name") == "when")
    assert found["described"].to_list() == [described]
