"""Texts, numbers and truth values that JavaScript treats differently from Python and polars. Each
expected value comes from Node 20.
"""

import math

import pytest

from mcptally.seeds import javascript
from mcptally.seeds.inspector import inspector
from mcptally.wire.nesting import MAX_DEPTH, raised_recursion_limit
from tests.seeds.cases import decided


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1.0", "1"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("1e21", "1e+21"),
        ("1e20", "100000000000000000000"),
        ("123456789012345680000", "123456789012345680000"),
        ("9007199254740993", "9007199254740992"),
        ("0.000001", "0.000001"),
        ("0.0000001", "1e-7"),
        ("1.5e-9", "1.5e-9"),
        ("5e-324", "5e-324"),
        ("1e400", "null"),
        ("0.1", "0.1"),
        ("-12.50", "-12.5"),
        ('{"b":1,"2":2,"10":3,"01":4,"-1":5,"a":6}', '{"2":2,"10":3,"b":1,"01":4,"-1":5,"a":6}'),
        ('{"4294967294":1,"4294967295":2,"0":3}', '{"0":3,"4294967294":1,"4294967295":2}'),
        ('{"a":1,"a":2}', '{"a":2}'),
        (r'"\u00e9\u2028\u007f"', '"é\u2028\x7f"'),
        (r'"\ud83d"', r'"\ud83d"'),
        (r'"\ud83d\ude00"', '"\U0001f600"'),
        (r'"\u0007\b\n\/"', r'"\u0007\b\n/"'),
        ("[1, 2 ,[]]", "[1,2,[]]"),
    ],
)
def test_json_is_written_as_json_stringify_writes_it(text, written):
    assert javascript.stringify(javascript.parse(text)) == written


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "\ufeff1", "01", "1.", "'a'", ""])
def test_text_that_json_parse_rejects_is_rejected(text):
    with pytest.raises(ValueError, match=r".*"):
        javascript.parse(text)


def test_a_number_of_any_length_and_any_nesting_up_to_the_limit_is_written():
    assert javascript.parse("9" * 5000) == math.inf
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    with raised_recursion_limit():
        assert javascript.stringify(javascript.parse(deep)) == deep
    with pytest.raises(RecursionError):
        javascript.parse(f"[{deep}]")


TRUTHY = ([], {}, "0", "false", 1, -1, math.inf, True)
FALSY = (None, False, 0, -0.0, "", math.nan, javascript.MISSING)


@pytest.mark.parametrize("value", [*TRUTHY, *FALSY])
def test_a_value_is_truthy_as_in_javascript(value):
    assert javascript.truthy(value) == any(value is each for each in TRUTHY)


@pytest.mark.parametrize(
    ("text", "units", "kept"),
    [
        ("abc", 2, "ab"),
        ("a\U0001f600b", 2, "a\ud83d"),
        ("a\U0001f600b", 3, "a\U0001f600"),
        ("\U0001f600" * 60, 100, "\U0001f600" * 50),
        ("", 5, ""),
    ],
)
def test_a_cut_counts_utf16_units(text, units, kept):
    assert javascript.cut(text, units) == kept


def test_a_lone_surrogate_becomes_the_replacement_character_in_tables():
    assert javascript.printable("a\ud83d") == "a\ufffd"
    assert javascript.printable("\U0001f600") == "\U0001f600"


@pytest.mark.parametrize(
    ("above", "below", "result"), [(1, 2, 0.5), (1, 0, math.inf), (-1, 0, -math.inf)]
)
def test_division_never_raises(above, below, result):
    assert javascript.divided(above, below) == result
    assert math.isnan(javascript.divided(0, 0))


def test_math_round_rounds_halves_up_and_keeps_nan():
    assert [javascript.rounded(x) for x in (0.5, 1.5, 2.5, -0.5)] == [1, 2, 3, 0]
    assert math.isnan(javascript.rounded(math.nan))
    assert math.isnan(javascript.at_most(100, math.nan))


# What is examined, and which of the six factors hold in JavaScript.
TEXTS = [
    ("\u212a credits", {"business_pattern"}, "KELVIN SIGN is k in lower case"),
    ("mu\u017ft be", set(), "LONG S is no s, though regexes without case take it for one"),
    ("not\u00a0found", set(), "NO-BREAK SPACE is no space"),
    ("id\ufeff5", {"validates_test_data"}, r"\s has U+FEFF"),
    ("id\u00855", set(), r"\s lacks U+0085, which Rust's has"),
    ("id\u001c5", set(), r"\s lacks U+001C, which Python's has"),
    ("id\u180e5", set(), r"\s lacks U+180E"),
    ("éid: 5", {"validates_test_data"}, r"\b is ASCII: é is no word character"),
    ("id: \u0663", set(), r"\d is ASCII"),
    ("\u0130D: 5", set(), "İ is i and a dot above in lower case"),
    ("ID: 5", {"validates_test_data"}, "lower case first"),
    ("Con\ufb02ict", set(), "a ligature stays one character"),
]


@pytest.mark.parametrize(("text", "held", "why"), TEXTS, ids=[why for _, _, why in TEXTS])
def test_python_and_polars_read_text_as_javascript_does(text, held, why):
    decision = inspector.decide(text.lower(), "frobnicate")
    names = ("business_pattern", "http_status", "structured_error", "validates_test_data")
    assert {name for name in names if getattr(decision, name)} == held, why
    row = decided(text)
    assert {name for name in names if row[f"inspector_factor_{name}"]} == held, why


@pytest.mark.parametrize("tool", ["\u212aeep_o\u212apen", "LİST", "lo\u0041d", "\uff4coad"])
def test_tool_names_are_lowercased_alike(tool):
    expected = inspector.decide("x", tool).validation_expected
    assert decided("x", tool)["inspector_factor_validation_expected"] == expected


def test_five_ninths_are_five_ninths_in_columns_too():
    text = "404 not found, error type: x, invalid test"
    assert inspector.decide(text, "frobnicate").confidence == 5 / 9
    assert decided(text, "x")["inspector_business_confidence"] == 5 / 9
