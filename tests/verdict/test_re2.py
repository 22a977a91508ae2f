"""RE2 on folded texts gives the same matches as the Rust engine on the original texts."""

import msgspec
import polars as pl
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mcptally.verdict import classify, hidden_errors
from mcptally.verdict.match import alternation, match_rules
from mcptally.verdict.re2 import fold, fold_changed, forms
from mcptally.verdict.rule_model import words_of_languages

PATTERNS = [
    alternation([each], start=rule.where == "start")
    for rule in (*classify.failure_rules(), *hidden_errors.hidden_error_rules())
    for each in (*rule.matches, *rule.also, *rule.unless)
    if each not in words_of_languages().get(rule.words, ())
]
EXACT = [each for each in PATTERNS if (known := forms(each)) and known.exact]
TRANSLATED = [
    each
    for rule in classify.failure_rules()
    for each in (alternation([one]) for one in rule.matches)
    if (known := forms(each)) and not known.exact
]

words = st.sampled_from(
    [
        "error",
        "Fehler",
        "naïve",
        "日本語",
        "must be",
        "'é'",
        "٣",
        "404",
        "\u2013",
        "“x”",
        "\u2028",
        "\x0b",
    ]
)
gaps = st.sampled_from([" ", "", "\n", "\u00a0", ": ", "…", "\t"])
texts = st.lists(st.tuples(words, gaps), max_size=9).map(lambda parts: "".join(map("".join, parts)))


def test_re2_supports_most_patterns_of_the_shipped_rules():
    assert len(EXACT) > 0.85 * len(PATTERNS)


def test_a_digit_beyond_ascii_is_not_taken_for_zero():
    assert not forms(r"errors: 0\b").exact
    assert forms(r"errors?[^\n]{0,10}:").exact
    calls = pl.DataFrame({"text": ["Errors: \u0663", "Errors: 0"]})
    assert hidden_errors.find_hidden_errors(calls)["hidden_rule"].to_list() == [
        "hidden.text.error-colon",
        "hidden.trap.no-error",
    ]


@pytest.mark.slow
@settings(max_examples=4 * settings.default.max_examples // 5)
@given(st.lists(texts, min_size=1, max_size=20))
@example(["Path '日本語テキスト' must be absolute"])
@example(["naïve error"])
def test_both_engines_match_the_same_texts(some):
    series = pl.Series(some, dtype=pl.String)
    ascii_only = fold(series).folded
    for each in EXACT[::7]:
        rust = series.str.contains(each).to_list()
        assert pc.match_substring_regex(ascii_only, each).to_pylist() == rust, each


@pytest.mark.slow
@settings(max_examples=2 * settings.default.max_examples // 5)
@given(st.lists(texts, min_size=1, max_size=20))
@example(["ошибка сети", "błąd połączenia", "数据库连接失败", "Zeitüberschreitung"])
def test_translated_patterns_match_the_plain_texts_and_no_fewer_others(some):
    series = pl.Series(some, dtype=pl.String)
    ascii_only, plain = (folding := fold(series)).folded, folding.plain.tolist()
    for each in TRANSLATED[::5]:
        rust = series.str.contains(each).to_list()
        exact = pc.match_substring_regex(ascii_only, forms(each).plain).to_pylist()
        assert [x for x, p in zip(exact, plain, strict=True) if p] == [
            x for x, p in zip(rust, plain, strict=True) if p
        ], each
        if forms(each).folded is not None:
            wide = pc.match_substring_regex(ascii_only, forms(each).folded).to_pylist()
            assert all(w for w, r in zip(wide, rust, strict=True) if r), each


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("für|fur", "fur", True),
        ("für|fur", "für", True),
        ("für|fur", "f_r", False),
        (r"\p{Thai}{2}|ok", "___", False),
        (r"\p{Thai}{2}|ok", "ไทย", True),
        ("[в-я]{3}", "Ошибка", True),
        ("[^é]x", "éx", False),
        ("[^é]x", "ex", True),
        ("[À-ɏ]x", "sx", True),
        (r"\x{e9}x|ok", "éx", True),
        (r"[\x{e0}-\x{ef}]x", "_x", False),
        (r"[^\x{e9}]x", "éx", False),
        ("a--b", "a--b", True),
    ],
)
def test_a_pattern_with_characters_beyond_ascii_matches_what_rust_matches(pattern, text, matches):
    rule = rule_with(pattern)
    texts = pl.Series([text])
    (rows,) = match_rules([rule], texts, texts)
    assert pl.Series([text]).str.contains(alternation([pattern]))[0] == matches
    assert len(rows) == matches


def test_a_code_point_is_translated_like_its_character() -> None:
    assert forms(r"\x{e9}+ --x") == forms("é+ --x") is not None


def rule_with(pattern):
    return msgspec.structs.replace(
        classify.failure_rules()[0], matches=(pattern,), unless=(), also=()
    )


@pytest.mark.parametrize(
    "pattern",
    [
        r"\x{65}",
        r"\x{110000}",
        r"[a-z--[e]]",
        r"\pL",
        r"\p{Latin}",
        r"(?x) a",
        r"[a-z&&[^e]]",
        r"\b{start}a",
        "\u017f",
    ],
)
def test_a_pattern_that_re2_reads_in_another_way_has_no_translation(pattern):
    assert forms(pattern) is None


def test_folding_keeps_ascii_characters_and_the_number_of_characters():
    series = pl.Series(["aé b٣c…d\x0be", "plain", None])
    assert fold(series).folded.to_pylist() == [b"a_ b0c\x7fd e", b"plain", None]


def test_texts_that_differ_in_part_from_folded_ones_are_folded_as_if_alone():
    originals = pl.Series(["a", "• né", "\x01b", "c ü"])
    for changed in (["a", "né", "\x01b", "x"], originals.to_list()):
        texts = pl.Series(changed)
        folding = fold_changed(texts, originals, fold(originals))
        assert folding.folded.to_pylist() == fold(texts).folded.to_pylist()
        assert folding.plain.tolist() == fold(texts).plain.tolist()
