"""Content blocks of tool results, in both interpretations and by the MCP specification."""

# ruff: noqa: E501  (tables of cases, one a line)

import json

import mcp.types
import pytest

from mcptally.seeds.redmine import content, xml
from mcptally.seeds.redmine.list_counts import count_messages
from tests.seeds.cases import cases

INTERPRETATIONS = {"repo": "program", "adr": "document"}


@pytest.mark.parametrize("case", cases("content-shape"))
@pytest.mark.parametrize("name", INTERPRETATIONS)
def test_both_interpretations_stop_where_the_originals_do(case, name):
    first = next(content.violations(case["response"], INTERPRETATIONS[name]), None)
    outcome = {"valid": False, "error": first.code} if first else {"valid": True}
    assert outcome == case["oracle"][name]


@pytest.mark.parametrize(
    ("block", "program", "document"),
    [
        ({"type": "text", "text": ""}, content.MORE, None),
        ({"type": "text", "text": None}, content.IS, content.IS),
        ({"type": "text"}, content.HAS, content.HAS),
        ({"type": "image", "data": None, "mimeType": None}, content.IS, None),
        ({"type": "image", "data": 5}, content.HAS, content.HAS),
        ({"type": "resource", "resource": None}, content.HAS, None),
        ({"type": "resource", "resource": {"uri": 5, "blob": ""}}, None, None),
        (
            {"type": "resource", "resource": {"uri": "u", "text": None, "blob": "x"}},
            content.IS,
            None,
        ),
        ({"type": "audio"}, None, content.IN),
        ({"type": ["text"]}, None, content.IN),
        ([], content.HAS, content.HAS),
    ],
)
def test_a_block_gets_the_result_of_each_original(block, program, document):
    result = {"content": [block], "isError": "anything"}
    for interpretation, expected in (("program", program), ("document", document)):
        first = next(content.violations(result, interpretation), None)
        assert (first.code if first else None) == expected


def test_the_assertion_names_block_and_path():
    result = {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]}
    with pytest.raises(AssertionError) as caught:
        content.assert_tool_response(result)
    assert str(caught.value).splitlines() == [
        "not a tool response by the program",
        "  /isError: isError is missing",
        "  block 1 at /content/1/text: text is empty",
    ]
    content.assert_tool_response(result | {"isError": False}, rules="document")
    with pytest.raises(ValueError, match="rules must be one of document, program, not 'strict'"):
        content.assert_tool_response(result, rules="strict")  # type: ignore[arg-type]


def test_the_assertion_accepts_sdk_models_and_json_text():
    block = mcp.types.TextContent(type="text", text="fine")
    content.assert_tool_response(mcp.types.CallToolResult(content=[block]))
    content.assert_tool_response('{"content":[{"type":"text","text":"x"}],"isError":true}')
    with pytest.raises(AssertionError, match="content is empty"):
        content.assert_tool_response(mcp.types.CallToolResult(content=[]))


PNG = "iVBORw0KGgo="


@pytest.mark.parametrize(
    ("block", "rules"),
    [
        ({"type": "text", "text": "x"}, []),
        ({"type": "image", "data": PNG, "mimeType": "image/png"}, []),
        ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav; codecs=1"}, []),
        ({"type": "resource_link", "uri": "u", "name": "n"}, []),
        ({"type": "resource", "resource": {"uri": "u", "blob": "AAAA"}}, []),
        ({"type": "image", "data": PNG, "mimeType": "image/jpeg"}, ["content.mime_type"]),
        ({"type": "image", "data": "AAAA", "mimeType": "png"}, ["content.mime_type"]),
        ({"type": "image", "data": "AAAA", "mimeType": "text/plain"}, ["content.mime_type"]),
        ({"type": "image", "data": "data:image/png;base64,AAAA", "mimeType": "image/png"}, ["content.base64"]),
        ({"type": "image", "data": "a_-A", "mimeType": "image/png"}, ["content.base64"]),
        ({"type": "image", "data": "AAA", "mimeType": "image/png"}, ["content.base64"]),
        ({"type": "image", "data": "", "mimeType": "image/png"}, ["content.base64"]),
        ({"type": "resource", "resource": {"uri": "u"}}, ["content.block_shape"]),
        ({"type": "resource", "resource": {"uri": "u", "text": "", "blob": ""}}, ["content.block_shape", "content.base64"]),
        ({"type": "resource_link", "uri": "u"}, ["content.block_shape"]),
        ({"type": "TEXT", "text": "x"}, ["content.block_type"]),
        ({"text": "x"}, ["content.block_type"]),
        ("x", ["content.block_shape"]),
    ],
)  # fmt: skip
def test_a_block_is_checked_against_the_mcp_specification(block, rules):
    assert [violation.code for violation in content.block_violations([block])] == rules


DECLARED = '<?xml version="1.0" encoding="UTF-8"?>\n'


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ('<issues type="array" total_count="0" limit="25" offset="0"/>', []),
        ("<a>Tom &amp; Jerry &quot;</a>", []),
        ("<a>Tom & Jerry</a>", ["an unescaped & (line 2, column 8)"]),
        ("<a>\n1 < 2</a>", ["an unescaped < (line 3, column 3)"]),
        ("<a>ä & ö</a>", ["an unescaped & (line 2, column 6)"]),
        ("<a><b></a>", ["mismatched tag (line 2, column 9)"]),
        ('<a>say "hi"</a>', ['an unescaped " in text (line 2, column 4)']),
        ("<a><custom_fields><field><id>1</id><name>n</name><value>v</value></field></custom_fields></a>", []),
        (
            "<a><custom_fields><field><id>1</id></field></custom_fields></a>",
            ["a custom field holds id instead of id, name, value (line 2, column 36)"],
        ),
        (
            '<issues total_count="1" limit="1" offset="0"><issue/><issue/></issues>',
            ["2 items but limit is 1", "offset 0 and 2 items exceed total_count 1"],
        ),
    ],
)  # fmt: skip
def test_xml_violations_have_a_line_and_a_column(text, messages):
    assert [violation.message for violation in xml.check(DECLARED + text)] == messages


def test_the_xml_declaration_is_checked():
    codes = [b.code for b in xml.check('<?xml version="1.1" encoding="latin-1"?><a/>')]
    assert codes == ["content.xml_version", "content.xml_encoding"]
    assert [b.code for b in xml.check(" " + DECLARED + "<a/>")] == ["content.xml_malformed"]


def test_entities_are_not_expanded():
    bomb = '<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;">]><a>&y;</a>'
    assert list(xml.check(DECLARED + bomb)) == []
    assert list(xml.check(DECLARED + "<a>" * 100_000)) == []


@pytest.mark.parametrize(
    ("counts", "items", "wrong"),
    [
        ({}, 3, 0),
        ({"total_count": 3}, 3, 0),
        ({"total_count": 100, "limit": 25, "offset": 75}, 25, 0),
        ({"total_count": 100, "limit": 25, "offset": 75}, 24, 1),
        ({"total_count": 100, "limit": 25, "offset": 100}, 0, 0),
        ({"total_count": "many"}, 0, 1),
        ({"total_count": -1}, 0, 1),
        ({"total_count": True}, 1, 1),
        ({"total_count": 2, "limit": 25}, 3, 1),
    ],
)
def test_counts_are_compared_with_the_number_of_items(counts, items, wrong):
    assert len(list(count_messages(counts, items))) == wrong


def test_counts_of_json_objects_are_compared():
    from mcptally.seeds.redmine.list_counts import object_messages

    assert list(
        object_messages(json.loads('{"issues":[1,2],"total_count":1,"offset":0,"limit":25}'))
    )
    assert not list(object_messages(json.loads('{"issues":[1],"tags":[2],"total_count":7}')))
