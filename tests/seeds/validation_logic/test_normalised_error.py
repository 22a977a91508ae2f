"""Normalised errors: read from their structure, or inferred by rules."""

# ruff: noqa: E501  (tables of cases, one a line)

import json

import polars as pl
import pytest

from mcptally.redaction.display import mask_and_cut
from mcptally.seeds.validation_logic import normalised_error
from mcptally.seeds.validation_logic.arguments import unwrapped
from mcptally.tables.stages import Judged
from mcptally.verdict import classify

EXAMPLES = [
    (rule.id, kind, example)
    for rule in normalised_error.category_rules()
    for kind in ("fires", "silent")
    for example in getattr(rule, kind)
]


def errors_of(rows: list[dict[str, object]]) -> pl.DataFrame:
    schema = {name: Judged.schema()[name] for name in normalised_error.READ}
    return pl.DataFrame(rows, schema=schema)


@pytest.fixture(scope="module")
def decided() -> list[str]:
    """The id of the rule that decides each example of an unstructured error."""
    inputs = [
        {"outcome": "tool_error"} | ({"error_text": each} if isinstance(each, str) else dict(each))
        for _, _, each in EXAMPLES
    ]
    errors = errors_of(inputs)
    errors = errors.with_columns(text=pl.col("error_text").fill_null(""))
    return [rule.id for rule in normalised_error._deciding_rules(errors)]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_a_row_decides_its_examples_and_no_others(decided, number):
    rule, kind, example = EXAMPLES[number]
    assert (decided[number] == rule) == (kind == "fires"), example


def test_every_reason_of_a_verdict_has_a_row():
    known = {reason for rule in normalised_error.category_rules() for reason in rule.reasons}
    assert {rule.reason for rule in classify.failure_rules()} - known == set()


def of(text="", **given):
    row = {"outcome": "tool_error", "error_text": text} | given
    return normalised_error.normalise_errors(errors_of([row])).row(0, named=True)


@pytest.mark.parametrize(
    ("given", "category", "code", "http", "retryable", "source"),
    [
        ({"error_detail": {"category": "validation", "code": "BAD_REF", "message": "x"}, "ok": False, "status": "error", "error": "x"}, "validation", "BAD_REF", 400, False, "structured"),
        ({"error": {"category": "rate_limited", "code": "SLOW_DOWN", "message": "x"}}, "rate_limited", "SLOW_DOWN", 429, True, "structured"),
        ({"category": "patch", "code": "PATCH_MALFORMED", "message": "x"}, "patch", "PATCH_MALFORMED", 400, False, "structured"),
        ({"category": "patch", "code": "FILE_NOT_FOUND", "message": "x"}, "patch", "FILE_NOT_FOUND", 404, False, "structured"),
        ({"error": {"code": "NOT_FOUND", "message": "x"}}, "not_found", "NOT_FOUND", 404, False, "partial"),
        ({"error": {"message": "x", "status": 403}}, "permission", "PERMISSION_DENIED", 403, False, "partial"),
        ({"ok": False, "status": 422, "error": "x"}, "validation", "VALIDATION_ERROR", 422, False, "partial"),
        ({"error": {"category": "internal", "code": "E1", "retryable": True}}, "internal", "E1", 500, True, "structured"),
        ({"error": {"code": -32602, "message": "x"}}, "internal", "INTERNAL_ERROR", 500, False, "inferred"),
        ({"success": False, "error": "x"}, "internal", "INTERNAL_ERROR", 500, False, "inferred"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["text", "error_text", "structured_content", "error_data"])
def test_an_error_that_describes_itself_is_read(
    given, category, code, http, retryable, source, place
):
    row = of(**{place: json.dumps(given)})
    assert [row[f"error_{name}"] for name in ("category", "code_name", "retryable", "source")] == [
        category,
        code,
        retryable,
        source,
    ]
    assert row["http_equivalent"] == http


def test_a_structure_after_other_text_is_found():
    row = of(
        'Error executing tool x: {"error":{"category":"auth","code":"NO_TOKEN","hint":"log in"}}'
    )
    assert (row["error_category"], row["error_code_name"]) == ("auth", "NO_TOKEN")
    assert row["error_hint"] == "log in"


def test_issues_of_a_schema_library_are_details():
    issues = [{"code": "invalid_type", "path": ["owner"], "message": "Expected string"}]
    row = of("Invalid input: " + json.dumps(issues))
    assert (row["error_category"], row["error_source"]) == ("validation", "partial")
    assert json.loads(row["error_details"]) == issues


def test_details_contain_no_tokens():
    secret = "ghp_" + "a1B2" * 9
    details = {"category": "auth", "code": "BAD", "details": {"authorization": f"Bearer {secret}"}}
    row = of(json.dumps({"error_detail": details}))
    assert secret not in row["error_details"]
    assert "[redacted:" in row["error_details"]


def test_successful_calls_have_no_error_columns():
    assert set(of("fine", outcome="ok").values()) == {None}


def test_the_category_of_a_type_error_differs_from_its_verdict():
    text = "TypeError: Cannot read properties of undefined (reading 'map')"
    calls = pl.DataFrame([{"outcome": "tool_error", "error_text": text}])
    verdict = classify.judge(calls).row(0, named=True)
    assert verdict["verdict"] == "tool_failure"
    assert of(text, reason=verdict["reason"])["error_category"] == "validation"


@pytest.mark.parametrize(
    ("payload", "declared", "arguments", "layers"),
    [
        ({"a": 1}, (), {"a": 1}, ()),
        ({"a": 1, "_meta": {"x": 1}}, (), {"a": 1}, ()),
        ('{"a": 1}', (), {"a": 1}, ("JSON text",)),
        ({"args": {"a": 1}}, (), {"a": 1}, ("args",)),
        ({"args": {"a": 1}}, ("args",), {"args": {"a": 1}}, ()),
        ({"input": None, "args": {"a": 1}}, (), {"a": 1}, ("args",)),
        ({"input": {"b": 1}, "args": {"a": 1}}, (), {"a": 1}, ("args",)),
        (
            {"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"name": "t", "arguments": '{"a":1}'}},
            (),
            {"a": 1},
            ("params", "arguments", "JSON text"),
        ),
        ({"input": "free text"}, (), {"input": "free text"}, ()),
        ("[1]", (), {}, ()),
        (None, (), {}, ()),
    ],
)  # fmt: skip
def test_arguments_are_unwrapped_from_every_known_wrapper(payload, declared, arguments, layers):
    assert unwrapped(payload, declared) == (arguments, layers)


def test_printed_text_is_cut_and_masked():
    assert mask_and_cut("x" * 50, 10) == "x" * 10 + "… (40 more characters)"
    assert mask_and_cut('{"password": "hunter2hunter2"}') != '{"password": "hunter2hunter2"}'
