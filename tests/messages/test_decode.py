import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptally.messages.decode import Events, decode
from tests.strategies import JSON_VALUES
from tests.transcripts import c2s, call, event, opened, s2c, text, write


def decoded(tmp_path: Path, *events) -> Events:
    return decode([write(tmp_path / "x.jsonl", events)], ["x.jsonl"])


def findings(events: Events) -> list[tuple[str, int | None]]:
    return events.findings.select("rule", "line").rows()


BROKEN = {
    "not JSON": (b"{oops}", "not_json"),
    "not an object": (b"[1, 2]", "not_an_event"),
    "not an event": (b'{"v": 1}', "not_an_event"),
    "unknown event": (b'{"event": "party", "recording": "r"}', "not_an_event"),
    "withheld by redact": (b'{"v":1,"withheld":"the line is not UTF-8","bytes":42}', "withheld"),
    "not UTF-8": (b'{"event": "stderr", "text": "\xff"}', "not_utf8"),
    "seq is not a number": (
        b'{"event":"stderr","recording":"r","seq":"x","ts_ns":1}',
        "not_an_event",
    ),
    "nested too deep": (b'{"event":"stderr","recording":"r","x":' + b"[" * 9999, "too_deep"),
}


@pytest.mark.parametrize(("line", "rule"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("neighbours", [1, 100])
def test_a_broken_line_is_a_finding_and_does_not_affect_other_lines(
    tmp_path: Path, line: bytes, rule: str, neighbours: int
):
    before = [c2s(i, call(i)) for i in range(neighbours)]
    after = [s2c(i + 500, text(i)) for i in range(neighbours)]
    events = decoded(tmp_path, *before, line + b"\n", *after)
    assert findings(events) == [(f"transcript.{rule}", neighbours + 1)]
    assert events.messages.height == 2 * neighbours
    lines = [*range(1, neighbours + 1), *range(neighbours + 2, 2 * neighbours + 2)]
    assert events.messages["line"].to_list() == lines


def test_a_truncated_last_line_is_a_warning(tmp_path: Path):
    events = decoded(tmp_path, opened(), c2s(1, call(1)), b'{"v":1,"event":"mess')
    assert findings(events) == [("transcript.torn_tail", 3)]
    assert events.findings["severity"].to_list() == ["warning"]
    assert events.messages.height == 1


def test_after_a_thousand_findings_of_a_fault_the_rest_is_counted(tmp_path: Path):
    events = decoded(tmp_path, b"nonsense\n" * 1500)
    assert events.findings.height == 1001
    assert "500 more" in events.findings["message"].to_list()[-1]


ODD_MESSAGES = {
    "null": b"null",
    "a number": b"5",
    "a string": b'"hi"',
    "method of another type": b'{"method": 5, "id": 1}',
    "error that is a string": b'{"id": 1, "error": "broken"}',
    "params that are a list": b'{"id": 1, "method": "x", "params": [1]}',
    "result that is a string": b'{"id": 1, "result": "x"}',
}


@pytest.mark.parametrize("msg", ODD_MESSAGES.values(), ids=ODD_MESSAGES)
def test_a_message_of_any_json_type_is_a_row(tmp_path: Path, msg: bytes):
    line = json.dumps(c2s(1, "MSG")).encode().replace(b'"MSG"', msg) + b"\n"
    events = decoded(tmp_path, line, c2s(2, call(2)))
    assert events.messages.height == 2
    assert not findings(events)


IDS = {
    "": None,
    ',"id":null': "null",
    ',"id":"1"': '"1"',
    ',"id":0': "0",
    ',"id":12345678901234567890123': "12345678901234567890123",
    ',"id":1,"id":2': "2",
}


def test_ids_keep_their_text_and_the_last_of_two_is_used(tmp_path: Path):
    messages = [f'{{"method":"a"{id_}}}' for id_ in IDS]
    lines = [json.dumps(c2s(n, "M")).replace('"M"', each) for n, each in enumerate(messages)]
    events = decoded(tmp_path, "\n".join([*lines, ""]).encode())
    assert events.messages["id"].to_list() == [*IDS.values()]


def test_members_of_a_batch_are_messages_with_an_index(tmp_path: Path):
    events = decoded(tmp_path, c2s(1, [call(1), call(2)]), c2s(2, call(3)), c2s(3, []))
    assert events.messages.select("seq", "index", "batch", "id").rows() == [
        (1, 0, True, "1"),
        (1, 1, True, "2"),
        (2, 0, False, "3"),
        (3, 0, False, None),
    ]


def test_a_frame_over_the_size_cap_is_a_message_with_the_values_of_its_head(tmp_path: Path):
    head = {"dir": "c2s", "why": "too_large", "truncated": True, "bytes": 9_000_000}
    events = decoded(
        tmp_path,
        event("raw", 1, **head, text='{"id":1,', id=1, method="tools/call", name="echo"),
        event("raw", 2, **(head | {"dir": "s2c"}), text='{"id":1,', id=1, is_error=True),
        event("raw", 3, dir="s2c", why="not_json", text="banner", bytes=6),
        event("raw", 4, **head, text='{"params":{', id=None),
        event("raw", 5, **head, text='{"method":"x",', id=None, method="notifications/x"),
    )
    rows = events.messages.select("dir", "id", "method", "has_result", "truncated").rows()
    assert rows == [
        ("c2s", "1", "tools/call", False, True),
        ("s2c", "1", None, True, True),
        ("c2s", None, "notifications/x", False, True),
    ]
    assert events.asks["name"].to_list() == ["echo", None]
    assert events.replies["is_error"].to_list() == ["true"]


def texts(*words: object) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": each} for each in words]}


def image(data: object) -> dict[str, Any]:
    return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}


CONTENTS = {
    "absent": ({}, "absent", [], True, None),
    "null": ({"content": None}, "null", [], True, None),
    "empty": ({"content": []}, "array", [], True, None),
    "a string": ({"content": "hi"}, "other", [""], False, None),
    "one text": (texts("a"), "array", ["text"], True, "a"),
    "two texts": (texts("a", "b"), "array", ["text", "text"], True, "a\nb"),
    "text of another type": (texts(5), "array", ["text"], False, None),
    "null text": (texts(None), "array", ["text"], False, None),
    "no type": ({"content": [{"text": "a"}]}, "array", [""], False, None),
    "a block that is a string": ({"content": ["a"]}, "array", [""], False, None),
    "an image": (image("xx"), "array", ["image"], True, None),
    "data of another type": (image(1), "array", ["image"], False, None),
}


@pytest.mark.parametrize(
    ("result", "kind", "types", "plain", "words"), CONTENTS.values(), ids=CONTENTS
)
@pytest.mark.parametrize("odd_neighbour", [False, True])
def test_content_blocks_are_counted_and_unexpected_ones_marked(
    tmp_path: Path, result, kind, types, plain, words, odd_neighbour
):
    neighbours = [s2c(5, {"id": 9, "result": {"content": [7]}})] if odd_neighbour else []
    events = decoded(tmp_path, s2c(1, {"id": 1, "result": result}), *neighbours)
    found = events.replies.select("content_kind", "content_types", "blocks_plain", "text").row(0)
    assert found == (kind, types, plain, words)


LONG_TEXTS = {
    "ASCII": "x" * 70_000,
    "escapes": '\\"\n' * 40_000,
    "other scripts": "é東\N{GRINNING FACE}" * 30_000,
    "shifted by a byte": "x" + "é東\N{GRINNING FACE}" * 30_000,
}


@pytest.mark.parametrize("words", LONG_TEXTS.values(), ids=LONG_TEXTS)
@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize(("is_error", "limit"), [(False, 4000), (True, 65536)])
def test_of_a_long_text_the_beginning_is_kept(tmp_path: Path, words, ascii_only, is_error, limit):
    blocks = [{"type": "text", "text": words}, {"type": "text", "text": None}]
    line = s2c(1, {"id": 1, "result": {"content": blocks, "isError": is_error}})
    line = json.dumps(line, ensure_ascii=ascii_only).encode() + b"\n"
    events = decoded(tmp_path, line, s2c(2, {"id": 2, "result": {"content": blocks[:1] * 2}}))
    row = events.replies.row(0, named=True)
    assert row["text"] == words[:limit]
    assert row["content_types"] == ["text", "text"]
    assert row["blocks_plain"] is False
    assert events.replies["text"][1] == words[:4000]


def test_a_long_text_of_another_type_is_odd(tmp_path: Path):
    content = [{"type": "text", "text": ["x" * 70_000]}, {"type": "text", "text": "a"}]
    events = decoded(tmp_path, s2c(1, {"id": 1, "result": {"content": content}}))
    assert events.replies.row(0, named=True)["odd"]
    assert events.replies["text"][0] == "a"


names = st.sampled_from(
    ["jsonrpc", "id", "method", "params", "result", "error", "content", "isError", "name", "_meta"]
)
messages = st.dictionaries(
    names, JSON_VALUES | st.dictionaries(names, JSON_VALUES, max_size=4), max_size=5
)


@pytest.mark.slow
@settings(max_examples=3 * settings.default.max_examples)
@given(st.lists(messages | JSON_VALUES, max_size=8))
def test_any_json_as_a_message_becomes_rows_without_a_crash(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("any")
    events = decode(
        [write(folder / "x.jsonl", [c2s(i, value) for i, value in enumerate(values)])], ["x"]
    )
    # An empty batch is a row too.
    expected = sum(len(v) or 1 if isinstance(v, list) else 1 for v in values)
    assert events.messages.height == expected
    rules = set(events.findings["rule"])
    assert rules <= {"archive.empty_file"}


def test_equal_and_similar_results_keep_their_own_values(tmp_path: Path):
    long = "x" * 70_000
    tools = [{"name": "t", "description": long}]
    odd = {"content": [{"type": "text", "text": [1]}]}
    results = [
        {"content": [], "structuredContent": {"a": long}},
        {"content": [{"type": "text", "text": long}]},
        {"content": [], "structuredContent": {"a": long}},
        {"content": [], "structuredContent": {"b": long}},  # of the same length and end
        {"tools": tools},
        odd,
        {"content": [], "structuredContent": {"a": 1}},
        odd,
        {"content": [], "structuredContent": {"a": 1}},
    ]
    lines = [s2c(i, {"jsonrpc": "2.0", "id": i, "result": r}) for i, r in enumerate(results)]
    replies = decoded(tmp_path, *lines).replies

    def values(name: str) -> list[object]:
        return [None if text is None else json.loads(text) for text in replies[name]]

    assert values("response") == results
    assert values("structured_content") == [each.get("structuredContent") for each in results]
    assert values("tools") == [each.get("tools") for each in results]
    assert replies["has_structured_content"].to_list() == [
        "structuredContent" in each for each in results
    ]
    assert replies["odd"].to_list() == [each is odd for each in results]
    assert replies["row"].to_list() == [*range(len(results))]
