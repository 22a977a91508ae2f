"""Strict JSON is what every parser in use accepts."""

import json

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.wire.nesting import MAX_DEPTH
from mcptally.wire.strict_json import strict_json_error
from tests.strategies import JSON_VALUES

STRICT = {
    "an object": b'{"a":1}',
    "any kind of value": b"null",
    "a batch": b'[{"jsonrpc":"2.0"},{}]',
    "odd numbers": b"[1.50,1E+2,-0,0e999,1e-999,12345678901234567890123]",
    "an integer just below the largest double": b"1" + b"0" * 308,
    "long digits inside a string": b'["' + b"7" * 5000 + b'"]',
    "long digits behind a point": b'{"a":-1.' + b"7" * 5000 + b"}",
    "a duplicate key": b'{"a":1,"a":2}',
    "line separators": '["\u2028\u2029\x85"]'.encode(),
    "space around": b" \t{} \r",
    "a surrogate pair": b'["\\ud83d\\ude00"]',
    "an escaped nul": b'["\\u0000"]',
    "nesting as deep as we go": b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
    "brackets inside strings": b'["' + b"[" * 5000 + b'"]',
    "many shallow objects": b"[" + b",".join([b"{}"] * 5000) + b"]",
}

REFUSED = {
    "blank": b"",
    "blank, with space": b" \t",
    "not_json, a banner": b"Server running on stdio",
    "not_json, two values": b"{}{}",
    "not_json, a torn object": b'{"a":[1,2',
    "not_json, a raw control character": b'["\x01"]',
    "not_json, a trailing comma": b"[1,]",
    "bom": b"\xef\xbb\xbf{}",
    "not_utf8": b'["\xff"]',
    "not_utf8, an encoded surrogate": b'["\xed\xa0\x80"]',
    "not_utf8, beyond the last plane": b'["\xf4\x90\x80\x80"]',
    "not_utf8, overlong": b'["\xc0\x80"]',
    "not_strict_json, NaN": b"[NaN]",
    "not_strict_json, Infinity": b"[-Infinity]",
    "not_strict_json, a lone surrogate": b'["\\ud800"]',
    "not_strict_json, a lone surrogate as key": b'{"\\udc00":1}',
    "not_strict_json, a number beyond a double": b"[1e400]",
    "number_too_large, an integer beyond a double": b"[" + b"9" * 400 + b"]",
    "number_too_large, beyond Python's limit": b"[" + b"9" * 5000 + b"]",
    "number_too_large, far inside": b'[{"a":"' + b"x" * 9999 + b'","b":' + b"1" * 330 + b"}]",
    "too_deep": b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
    "too_deep, by objects": b'{"a":' * 600 + b"1" + b"}" * 600,
    "too_deep, beyond any parser": b"[" * 100_000 + b"]" * 100_000,
    "too_deep, behind brackets in strings": b'["]]]]]]]]",' * 600 + b"1" + b"]" * 600,
}


@pytest.mark.parametrize("frame", STRICT.values(), ids=STRICT.keys())
def test_json_that_every_parser_accepts_is_strict(frame):
    assert strict_json_error(frame) is None
    for parse in (json.loads, orjson.loads, msgspec.json.decode):
        parse(frame)


@pytest.mark.parametrize(("why", "frame"), REFUSED.items(), ids=REFUSED.keys())
def test_json_that_a_parser_refuses_has_a_reason(why, frame):
    assert strict_json_error(frame) == why.partition(",")[0]


@given(JSON_VALUES, st.booleans())
def test_any_json_without_surrogates_is_strict(value, escaped):
    text = json.dumps(value, ensure_ascii=escaped)
    assert strict_json_error(text.encode()) is None


_NEARLY = st.lists(
    st.sampled_from([
        b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"u", b"d800", b"1", b"e", b"+", b"-",
        b".", b"0", b"9" * 320, b"NaN", b"true", b'"a"', b"\xff", b"\xef\xbb\xbf", b" ", b"\r",
    ]),
    max_size=14,
).map(b"".join)  # fmt: skip


@given(st.one_of(st.binary(), _NEARLY))
def test_every_parser_accepts_strict_json(frame):
    if strict_json_error(frame) is None:
        json.loads(frame)
        orjson.loads(frame)
        msgspec.json.decode(frame)
