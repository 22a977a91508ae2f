import json
from typing import Any

import polars as pl
import pytest

from mcptally.jsonschemas.validate import first_json_text, validate_calls


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([{"type": "text", "text": '{"a": 1}'}], '{"a": 1}'),
        ([{"type": "text", "text": "Here:"}, {"type": "text", "text": " [1]"}], " [1]"),
        ([{"type": "text", "text": "{broken"}, {"type": "text", "text": "{}"}], "{}"),
        ([{"type": "image", "text": "{}"}], None),
        ([{"type": "text", "text": 7}, {"type": "text"}], None),
        ([], None),
    ],
)
def test_the_first_text_block_that_is_json_is_the_output(blocks: Any, expected: str | None):
    assert first_json_text(json.dumps({"content": blocks})) == expected


def test_a_json_text_longer_than_the_text_columns_is_not_cut():
    text = json.dumps({"rows": ["x" * 100] * 1000})
    assert first_json_text(json.dumps({"content": [{"type": "text", "text": text}]})) == text


def test_missing_arguments_are_validated_as_an_empty_object():
    calls = pl.DataFrame(
        {"call_id": ["1", "2", "3"], "definition": ["any", "needs a", "needs a"]}
    ).with_columns(
        tool=pl.lit("t"),
        outcome=pl.lit("ok"),
        arguments=pl.Series([None, None, '{"a":1}']),
        truncated=pl.lit(value=False),
        reply_truncated=pl.lit(value=False),
        **dict.fromkeys(("structured_content", "response"), pl.lit(None, pl.String)),
    )
    definitions = pl.DataFrame(
        {"definition": ["any", "needs a"], "input_schema": ["{}", '{"required":["a"]}']}
    ).with_columns(output_schema=pl.lit(None, pl.String))
    found = validate_calls(calls, definitions)
    assert found["input_schema_state"].to_list() == ["valid", "invalid", "valid"]
