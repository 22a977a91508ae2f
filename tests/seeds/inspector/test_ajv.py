"""Output schemas as AJV 6.12.6 judges them.

`ajv-6.12.6.jsonl` holds random schemas with random values and what AJV itself answered to them
(Node 20, `new Ajv()`, one instance a schema): `refused` where it would not compile the schema,
else the error's text for each value, null where it is valid.
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


def test_what_ajv_refuses_counts_as_no_schema():
    refused = [case["schema"] for case in GOLDEN if "refused" in case]
    assert len(refused) > 100
    assert [schema for schema in refused if ajv.compiled(schema) is not None] == []


def test_what_ajv_compiles_is_judged_as_ajv_judges_it():
    wrong = [
        (case["schema"], each["value"])
        for case in JUDGED
        for each in case["values"]
        if (ajv.compiled(case["schema"]).first_error(each["value"]) is None)
        != (each["error"] is None)
    ]
    assert len(JUDGED) > 250
    assert wrong == []


def test_the_words_are_ajvs_for_all_but_a_few_tangled_schemas():
    errors = [
        (ajv.compiled(case["schema"]).first_error(each["value"]), each["error"])
        for case in JUDGED
        for each in case["values"]
        if each["error"] is not None
    ]
    other = [pair for pair in errors if pair[0] != pair[1]]
    assert len(other) <= len(errors) * 0.01


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
            {"properties": {"a": {"type": ["string", "null"]}}},
            {"a": 1},
            "data.a should be string,null",
        ),
        ({"additionalProperties": {"type": "string"}}, {"a": 1}, "data['a'] should be string"),
        ({"items": {"minimum": 2}}, [3, 1], "data[1] should be >= 2"),
        (
            {"uniqueItems": True},
            [1, 2, 1],
            "data should NOT have duplicate items (items ## 0 and 2 are identical)",
        ),
        ({"pattern": "^{.}$"}, "x", 'data should match pattern "^{.}$"'),
        ({"multipleOf": 0.01}, 0.29, "data should be multiple of 0.01"),
        (
            {"dependencies": {"a": ["b"]}},
            {"a": 1},
            "data should have property b when property a is present",
        ),
    ],
)
def test_an_error_is_worded_as_ajv_words_it(schema, value, words):
    assert ajv.compiled(schema).first_error(value) == words


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        {"$schema": "https://json-schema.org/draft-07/schema#"},
        {"$schema": "http://json-schema.org/draft-06/schema#"},
        {"format": "phone-number"},
        {"properties": {"a": {"type": "number", "format": "float"}}},
        {"exclusiveMinimum": True},
        {"enum": []},
        {"enum": [1, 1.0]},
        {"$ref": "http://127.0.0.1:9/never-fetched"},
        {"$ref": "#/definitions/none"},
        {"pattern": "("},
        "object",
        5,
        [],
    ],
)
def test_a_schema_is_refused(schema):
    assert ajv.compiled(schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"$schema": "http://json-schema.org/draft-07/schema"},
        {"definitions": {"x": {"format": "phone", "$ref": "#/none"}}},
        {"$defs": {"x": {"type": "objekt"}}},
        {"pattern": r"^[\w-\.]+@{1}\Z$"},
    ],
)
def test_a_schema_is_compiled(schema):
    assert ajv.compiled(schema) is not None


def test_a_pattern_that_would_never_end_does():
    schema = {"pattern": "^(a+)+$"}
    assert ajv.compiled(schema).first_error("a" * 50 + "!") is not None


def test_a_number_too_great_for_a_double_is_an_integer_to_javascript():
    tool = {"name": "x", "outputSchema": {"properties": {"n": {"type": "integer"}}}}
    response = {"content": [{"type": "text", "text": '{"n":1e400}'}]}
    found = inspector.metadata(ValidationContext(tool=tool, response=response))
    assert found.output_schema_validation.is_valid


def test_a_lone_surrogate_is_judged_like_any_character():
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
def test_patterns_mean_what_they_mean_without_the_u_flag(pattern, matches, other):
    compiled = ajv.compiled({"pattern": pattern})
    assert compiled is not None, ajv_patterns.translate_pattern(pattern)
    assert [text for text in matches if compiled.first_error(text) is not None] == []
    assert [text for text in other if compiled.first_error(text) is None] == []


@pytest.mark.parametrize("text", ["^(?:a|b)+[c-e]{1,2}$", "a.b", r"\d+\s*\w?", "[^a-z]"])
def test_a_pattern_that_is_respelt_twice_stays_the_same(text):
    once = ajv_patterns.translate_pattern(text)
    assert ajv_patterns.translate_pattern(once) == once


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string", "format": "date-time"}}},
        {"properties": {"a": {"items": [{}]}}},
        {"$defs": {"P": {}}, "properties": {"a": {"$ref": "#/$defs/P", "minimum": 1}}},
        {"dependentRequired": {"a": ["b"]}},
        {"contains": {}},
        {"multipleOf": 0.1},
    ],
)
def test_a_verdict_of_another_dialect_is_not_taken_over(schema):
    assert ajv.compile_status(json.dumps(schema)) == (False, False)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"result": {"type": "string"}}, "x-wrap": True},
        {"$defs": {"P": {"type": "null"}}, "properties": {"a": {"$ref": "#/$defs/P"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "required": ["a"]},
    ],
)
def test_a_verdict_that_every_dialect_shares_is_taken_over(schema):
    assert ajv.compile_status(json.dumps(schema)) == (False, True)
