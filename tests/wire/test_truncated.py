"""Members of a JSON-RPC message are found at both ends of a frame over the cap."""

import json

import pytest

from mcptally.wire.framing import cap_frame
from mcptally.wire.truncated import fields_of_truncated
from tests.transcripts import request

BIG = "x" * 200_000

MESSAGES = {
    "a call": (
        request(7, "tools/call", name="t", arguments=BIG),
        {"id": 7, "method": "tools/call", "name": "t"},
    ),
    "a call whose arguments come first": (
        {
            "method": "tools/call",
            "params": {"arguments": {"name": "no", "x": BIG}, "name": "t"},
            "id": "q",
        },
        {"id": "q", "method": "tools/call"},
    ),
    "a resource": (
        {"id": 0, "method": "resources/read", "params": {"uri": "file:///a", "x": BIG}},
        {"id": 0, "method": "resources/read", "name": "file:///a"},
    ),
    "an answer of a JavaScript server": (
        {"result": {"content": [{"text": BIG}], "isError": True}, "jsonrpc": "2.0", "id": 3},
        {"id": 3, "is_error": True},
    ),
    "an answer of a Python server": (
        {"jsonrpc": "2.0", "id": 4, "result": {"isError": False, "content": [{"text": BIG}]}},
        {"id": 4, "is_error": False},
    ),
    "ids that are not the message's": (
        {"result": {"content": [{"id": 5, "isError": True}, BIG, {"id": 6, "isError": True}]}},
        {},
    ),
    "a batch": ([{"id": 1}, BIG, {"id": 2}], {}),
    "a string that looks like the end": ({"result": {"x": BIG + '","isError":true},"id":9}'}}, {}),
    "no object at all": (BIG, {}),
}


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")], ids=["tight", "spaced"])
@pytest.mark.parametrize(("message", "wanted"), MESSAGES.values(), ids=MESSAGES.keys())
def test_members_at_either_end_of_a_large_frame_are_found(message, wanted, separators):
    frame = json.dumps(message, separators=separators).encode()
    assert fields_of_truncated(cap_frame(frame, cap=100_000)) == wanted


@pytest.mark.parametrize(
    "junk", [b"}" * 99, b"[" * 99, b'"' * 99, b"\\" * 99, b"\xff" * 99, b"{:,"]
)
def test_garbage_has_no_members(junk):
    assert fields_of_truncated(cap_frame(junk * 2000, cap=1000)) == {}
