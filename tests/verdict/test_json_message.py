"""The messages inside error texts that are JSON objects."""

import json

import polars as pl
import pytest

from mcptally.verdict import json_message, judge


def message(text: str | None) -> str | None:
    return json_message.messages(pl.Series([text], dtype=pl.String))[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"success": false, "error": "no \\"x\\" here", "hint": "Is the server up?"}',
            'no "x" here',
        ),
        ('{"name": "NotFoundError", "error": "No order 5"}', "No order 5\nNotFoundError"),
        ('{"error": {"code": -1, "message": "boom"}, "tool": "add"}', "boom"),
        ('{"results": [{"error": "gone", "id": 7}, {"error": "gone"}]}', "gone"),
        ('{"errors": ["a is missing", "b is missing"]}', "a is missing\nb is missing"),
        ('{"error": "empty_query"}', "empty_query"),
        ('{"status": "error", "message": "Disk is full", "data": {"n": 5', "Disk is full"),
        ('{"status": "error", "message": "Disk is', "Disk is"),
        ('{"message_ru": "Нет места", "message_id": "m7"}', "Нет места"),
    ],
)
def test_messages_come_first_and_then_names_of_errors(text, expected):
    assert message(text) == expected


@pytest.mark.parametrize(
    "text",
    [None, "", "Error: no", '[{"message": "Required"}]', '{"rows": [1, 2]}', '{"success": false}'],
)
def test_a_text_without_messages_in_an_object_has_none(text):
    assert message(text) is None


def test_a_text_that_is_too_long_or_too_deep_has_none():
    assert message(json.dumps({"error": "x" * json_message.MAX_TEXT})) is None
    deep = {"error": "boom"}
    for _ in range(json_message.MAX_DEPTH + 1):
        deep = {"error": deep}
    assert message(json.dumps(deep)) is None


def test_hints_and_keys_of_json_are_no_evidence():
    hint = "Check that the server is running"
    call = {
        "outcome": "tool_error",
        "error_text": json.dumps({"tool": "get", "error": "No order O-5", "hint": hint}),
        "arguments": '{"order": "O-5"}',
    }
    assert judge(pl.DataFrame([call]))["verdict"][0] == "business"


def test_members_beside_a_message_without_a_cause_are_read():
    text = '{"error": "Failed to load", "status_line": "getaddrinfo ENOTFOUND db"}'
    call = {"outcome": "tool_error", "error_text": text}
    assert judge(pl.DataFrame([call]))["verdict"][0] == "infrastructure"
