import json
from typing import Any

from mcptally.jsonschemas.validate import first_json_text
from tests.rows import each_row


@each_row(
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
