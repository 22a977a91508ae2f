"""Untrusted schemas: both engines agree, nothing is executed or fetched, and validation ends."""

import json
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.jsonschemas.cost import max_value_depth
from mcptally.jsonschemas.dialects import (
    UnusableSchemaError,
    dialect_of,
    metaschema_errors,
    parse_schema,
)
from mcptally.jsonschemas.validators import _reference_judge, compile_validator, validate_json
from mcptally.pipeline.partition import gather
from tests import corpus
from tests.strategies import JSON_VALUES

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def usable(schema: str) -> Any:
    """Return the function that validates a value by a schema."""
    judge = compile_validator(schema)
    assert not isinstance(judge, str), judge
    return judge


@pytest.mark.slow
def test_both_engines_agree_on_recorded_traffic():
    files = corpus.recordings()[::8]
    part = gather(files, [file.name for file in files])
    calls = part.calls.filter(pl.col("tool").is_not_null())
    definitions = part.summary.definitions
    values = calls.select("tool", pl.coalesce("arguments", pl.lit("{}"))).unique().sort("tool")
    texts = dict(values.group_by("tool").agg("arguments").iter_rows())
    differ, compared = [], 0
    schemas = definitions.filter(pl.col("tool").is_in(list(texts)))
    for tool, schema in schemas.select("tool", "input_schema").drop_nulls().unique().iter_rows():
        judge, loaded = compile_validator(schema), json.loads(schema)
        name, _ = dialect_of(loaded), loaded.pop("$schema", None)
        slow = _reference_judge(name, loaded)
        if isinstance(judge, str) or slow is None:
            continue
        for text in texts.get(tool, ())[:3]:
            compared += 1
            fast = validate_json(judge, text)
            other = validate_json(slow, text)
            if other[0] == "unusable_schema":  # jsonschema would take too long
                continue
            # jsonschema-rs leaves out a last member whose name is empty.
            paths = [str(each[2]).removesuffix("/") for each in (fast, other)]
            if fast[0] != other[0] or (paths[0] != paths[1] and _has_one_place(fast)):
                differ.append((tool, text[:100], fast, other))
    assert compared > 120
    assert not differ


def _has_one_place(judgement: Any) -> bool:
    """Return False for additionalProperties, whose place differs between engines."""
    return "not allow" not in str(judgement[1])


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("[]", "neither an object nor a boolean"),
        ("{", "is not JSON"),
        ('{"$schema": "https://example.com/mine"}', "dialect is not known"),
        ('{"$schema": 7}', "dialect is not known"),
        ('{"allOf": [{"$ref": "#"}]}', "leads back to itself"),
        ('{"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}', "leads back"),
        (
            '{"items": {"$ref": "https://example.com/a"}, "patternProperties": {"a": {}}}',
            "example.com",
        ),
        ("{" + '"not": {' * 150 + "}" * 151, "nested deeper"),
        ('{"a": "' + "x" * (1 << 20) + '"}', "longer than"),
        ('{"properties": {"a": {"type": "strin"}}, "type": "object"}', "strin"),
    ],
)
def test_the_message_for_an_unusable_schema_states_the_reason(schema: str, words: str):
    judge = compile_validator(schema)
    assert isinstance(judge, str)
    assert words in judge


def test_a_schema_that_the_fast_engine_refuses_is_validated_by_the_reference_engine():
    judge = usable('{"properties": {"a": {"$ref": "#/$defs/nowhere"}, "b": {"type": "string"}}}')
    assert judge({"b": "x"})[0] == "valid"
    assert judge({"b": 1}) == ("invalid", "is an integer, not string", "/b")
    assert judge({"a": 1})[0] == "unusable_schema"


def test_a_value_for_which_references_multiply_is_refused():
    twice = {"allOf": [{"properties": {"x": {"$ref": "#"}}}, {"properties": {"x": {"$ref": "#"}}}]}
    judge = usable(json.dumps(twice))
    value: dict[str, Any] = {}
    for _ in range(60):
        value = {"x": value}
    assert judge({"x": {"x": {}}})[0] == "valid"
    assert judge(value)[0] == "unusable_schema"


def test_a_recursive_tree_schema_is_accepted():
    tree = {
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}},
        "additionalProperties": False,
    }
    assert max_value_depth(tree) is None
    judge = usable(json.dumps(tree))
    value: dict[str, Any] = {}
    for _ in range(200):
        value = {"left": value, "right": {}}
    assert judge(value)[0] == "valid"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"format": "email"}, "no address"),
        ({"$schema": DRAFT_7, "format": "date-time"}, "yesterday"),
        ({"$schema": DRAFT_7.replace("7", "4"), "format": "ipv4"}, "999"),
    ],
)
def test_formats_are_not_asserted_in_any_dialect(schema: Any, value: str):
    judge = usable(json.dumps(schema))
    assert judge(value)[0] == "valid"


def test_both_engines_report_the_topmost_error_first():
    schema = {
        "type": "object",
        "required": ["b"],
        "properties": {"a": {"properties": {"c": {"type": "integer", "maximum": 3}}}},
    }
    fast, slow = compile_validator(json.dumps(schema)), _reference_judge("2020-12", schema)
    assert not isinstance(fast, str)
    assert slow is not None
    for value in ({"a": {"c": "x"}}, {"a": {"c": 9}, "b": 1}, {"b": 1, "a": {"c": "x/y"}}):
        assert fast(value) == slow(value)
    assert fast({"a": {"c": "x"}}) == ("invalid", "lacks the member 'b'", "")
    assert fast({"a": {"c": 9}, "b": 1}) == ("invalid", "is greater than 3", "/a/c")


@pytest.mark.parametrize("name", ["it's", 'a"b', "a'b\"c", "", "is a required property"])
@pytest.mark.parametrize(
    "wants", [lambda n: {"required": [n]}, lambda n: {"dependentRequired": {"x": [n]}}]
)
def test_both_engines_name_the_missing_member_for_any_name(wants: Any, name: str):
    fast, slow = (
        compile_validator(json.dumps(wants(name))),
        _reference_judge("2020-12", wants(name)),
    )
    assert not isinstance(fast, str)
    assert slow is not None
    assert fast({"x": 1}) == slow({"x": 1}) == ("invalid", f"lacks the member {name!r}", "")


def test_messages_never_contain_the_value():
    private = "s3cr3t-value"
    for schema in (
        {"type": "integer"},
        {"enum": ["a"]},
        {"const": 1},
        {"maxLength": 2},
        {"pattern": "^b"},
    ):
        judge = usable(json.dumps({"properties": {"p": schema}}))
        state, words, path = judge({"p": private})
        assert (state, path) == ("invalid", "/p")
        assert private not in str(words)


KEYWORDS = st.sampled_from(
    ["type", "properties", "required", "items", "enum", "anyOf", "$ref", "pattern", "not"]
)


@given(st.dictionaries(KEYWORDS, JSON_VALUES, max_size=4), JSON_VALUES)
def test_any_schema_validates_any_value_or_gives_a_reason(schema: Any, value: Any):
    judge = compile_validator(json.dumps(schema))
    if isinstance(judge, str):
        assert judge
    else:
        assert judge(value)[0] in {"valid", "invalid", "unusable_schema"}
    try:
        errors = metaschema_errors(schema)
    except UnusableSchemaError:
        return
    assert all(words and (not path or path.startswith("/")) for path, words in errors)


def test_a_schema_nested_too_deeply_for_json_parsers_is_unusable():
    with pytest.raises(UnusableSchemaError):
        parse_schema('{"not":' * 5000 + "{}" + "}" * 5000)
