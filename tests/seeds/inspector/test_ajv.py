"""Validation of output schemas, compared with AJV 6.12.6.

`ajv-6.12.6.jsonl` contains random schemas with random values, and AJV's answers (Node 20, `new
Ajv()`, one instance per schema): `refused` if AJV rejects the schema, otherwise the error's text
for each value, or null if the value is valid.
"""

import json
from pathlib import Path

import pytest

from mcptally.seeds.inspector import inspector
from mcptally.seeds.inspector.ajv import patterns as ajv_patterns
from mcptally.seeds.inspector.ajv import schemas as ajv
from mcptally.seeds.inspector.model import ValidationContext

GOLDEN = [
    json.loads(line)
    for line in Path(__file__).with_name("ajv-6.12.6.jsonl").read_text("utf-8").splitlines()
]
JUDGED = [case for case in GOLDEN if "values" in case]


def test_a_schema_that_ajv_rejects_counts_as_no_schema():
    refused = [case["schema"] for case in GOLDEN if "refused" in case]
    assert len(refused) > 100
    assert [schema for schema in refused if ajv.compiled(schema) is not None] == []


def test_values_are_valid_for_the_same_schemas_as_with_ajv():
    wrong = [
        (case["schema"], each["value"])
        for case in JUDGED
        for each in case["values"]
        if (ajv.compiled(case["schema"]).first_error(each["value"]) is None)
        != (each["error"] is None)
    ]
    assert len(JUDGED) > 250
    assert wrong == []


def test_messages_equal_those_of_ajv_for_all_but_three_of_800():
    errors = [
        (ajv.compiled(case["schema"]).first_error(each["value"]), each["error"])
        for case in JUDGED
        for each in case["values"]
        if each["error"] is not None
    ]
    assert len(errors) == 799
    assert len([pair for pair in errors if pair[0] != pair[1]]) == 3


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ({"required": ["a", "b"]}, {}, "data should have required property '.a'"),
        ({"required": ["a-b"]}, {}, "data should have required property '['a-b']'"),
        (
            {"required": ["a"], "properties": {"a": {"type": "null"}}},
            {},
            "data should have required property 'a'",
        ),
        (
            {"uniqueItems": True},
            [1, 2, 1],
            "data should NOT have duplicate items (items ## 0 and 2 are identical)",
        ),
        ({"pattern": "^{.}$"}, "x", 'data should match pattern "^{.}$"'),
        ({"multipleOf": 0.01}, 0.29, "data should be multiple of 0.01"),
    ],
)
def test_an_error_message_equals_that_of_ajv(schema, value, words):
    assert ajv.compiled(schema).first_error(value) == words


@pytest.mark.parametrize(
    ("schema", "is_compiled"),
    [
        ({"$schema": "https://json-schema.org/draft/2020-12/schema"}, False),
        ({"$schema": "https://json-schema.org/draft-07/schema#"}, False),
        ({"$schema": "http://json-schema.org/draft-06/schema#"}, False),
        ({"$schema": "http://json-schema.org/draft-07/schema"}, True),
        ({"format": "phone-number"}, False),
        ({"properties": {"a": {"type": "number", "format": "float"}}}, False),
        ({"exclusiveMinimum": True}, False),
        ({"enum": []}, False),
        ({"enum": [1, 1.0]}, False),
        ({"$ref": "http://127.0.0.1:9/never-fetched"}, False),
        ({"$ref": "#/definitions/none"}, False),
        ({"definitions": {"x": {"format": "phone", "$ref": "#/none"}}}, True),
        ({"$defs": {"x": {"type": "objekt"}}}, True),
        ({"pattern": "("}, False),
        ({"pattern": r"^[\w-\.]+@{1}\Z$"}, True),
        ("object", False),
        (5, False),
        ([], False),
        ({}, True),
        (True, True),
    ],
)
def test_a_schema_is_compiled_or_rejected_as_by_ajv(schema, is_compiled):
    assert (ajv.compiled(schema) is not None) == is_compiled


def test_a_pattern_match_with_exponential_time_is_abandoned():
    schema = {"pattern": "^(a+)+$"}
    assert ajv.compiled(schema).first_error("a" * 50 + "!") is not None


def test_a_number_too_large_for_a_double_is_an_integer():
    tool = {"name": "x", "outputSchema": {"properties": {"n": {"type": "integer"}}}}
    response = {"content": [{"type": "text", "text": '{"n":1e400}'}]}
    found = inspector.metadata(ValidationContext(tool=tool, response=response))
    assert found.output_schema_validation.is_valid


def test_a_lone_surrogate_is_validated_like_any_character():
    assert ajv.compiled({"maxLength": 1}).first_error("\ud800") is None
    assert ajv.compiled({"maxLength": 1}).first_error({"\ud800": ["\udc00"]}) is None


@pytest.mark.parametrize(
    ("pattern", "matches", "other"),
    [
        (r"^[\w-.]+$", ["a-b.c"], ["a b"]),
        ("^{x}$", ["{x}"], ["x"]),
        ("^a{,3}$", ["a{,3}"], ["aa"]),
        ("^a{2}$", ["aa"], ["a", "a{2}"]),
        (r"\Z", ["Z"], ["", "a"]),
        (r"^\p{L}$", ["p{L}"], ["a"]),
        ("^.$", ["a", "é"], ["\n", "\u2028"]),
        ("^[^]$", ["\n", "a"], [""]),
        ("[]", [], ["", "a"]),
        (r"\bé", ["aé"], ["é", " é"]),
        (r"^\cJ$", ["\n"], ["J"]),
        (r"^[[]$", ["["], ["]"]),
        (r"^\0$", ["\0"], ["0"]),
        (r"^[\b]$", ["\b"], ["b"]),
        (r"^\x4$", ["x4"], ["\4"]),
        (r"^\u41$", ["u41"], ["A"]),
    ],
)
def test_patterns_mean_the_same_as_in_javascript_without_the_u_flag(pattern, matches, other):
    compiled = ajv.compiled({"pattern": pattern})
    assert compiled is not None, ajv_patterns.translate_pattern(pattern)
    assert [text for text in matches if compiled.first_error(text) is not None] == []
    assert [text for text in other if compiled.first_error(text) is None] == []


@pytest.mark.parametrize("text", ["^(?:a|b)+[c-e]{1,2}$", "a.b", r"\d+\s*\w?", "[^a-z]"])
def test_translating_a_translated_pattern_does_not_change_it(text):
    once = ajv_patterns.translate_pattern(text)
    assert ajv_patterns.translate_pattern(once) == once


@pytest.mark.parametrize(
    ("schema", "is_portable"),
    [
        ({"properties": {"a": {"type": "string", "format": "date-time"}}}, False),
        ({"properties": {"a": {"items": [{}]}}}, False),
        ({"$defs": {"P": {}}, "properties": {"a": {"$ref": "#/$defs/P", "minimum": 1}}}, False),
        ({"$defs": {"P": {"type": "null"}}, "properties": {"a": {"$ref": "#/$defs/P"}}}, True),
        ({"dependentRequired": {"a": ["b"]}}, False),
        ({"contains": {}}, False),
        ({"multipleOf": 0.1}, False),
        ({"properties": {"result": {"type": "string"}}, "x-wrap": True}, True),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "required": ["a"]}, True),
    ],
)
def test_a_schema_is_portable_if_every_dialect_gives_it_the_same_meaning(schema, is_portable):
    assert ajv.compile_status(json.dumps(schema)) == (False, is_portable)
