"""Names are not evidence: parts of tool names and of English words decide nothing."""

import lzma
from pathlib import Path

import polars as pl

from mcptally.verdict import classify, error_text, judge, match

HERE = Path(__file__).parent
WORDS = [
    line
    for line in lzma.decompress((HERE / "english_words.txt.xz").read_bytes()).decode().splitlines()
    if not line.startswith("#")
]
TOOLS = (HERE / "tool_names.txt").read_text("utf-8").splitlines()
"""Names of tools in the recordings of this repository."""


def test_no_word_of_another_language_is_found_in_english_words_or_names_of_tools():
    assert len(WORDS) == 10_000
    assert len(TOOLS) == 500
    texts = pl.Series([*WORDS, *TOOLS, *(f"Error executing tool {name}" for name in TOOLS)])
    rules = [rule for rule in classify.failure_rules() if rule.id.startswith("verdict.languages.")]
    found = match.match_rules(rules, texts, texts)
    wrong = {rule.id: texts[rows].to_list() for rule, rows in zip(rules, found, strict=True)}
    assert not any(wrong.values()), wrong


def test_the_name_of_the_tool_changes_no_verdict():
    names = pl.Series([error_text.THIS_TOOL, *TOOLS, *WORDS[::20]])
    for before, after in (("Error executing tool ", ": it broke"), ("Unknown tool: '", "'")):
        calls = pl.DataFrame({"tool": names}).with_columns(
            outcome=pl.lit("tool_error"), error_text=pl.lit(before) + pl.col("tool") + after
        )
        judged = judge(calls).with_columns(name=names)
        other = judged.filter(
            pl.struct(pl.exclude("name")) != pl.struct(pl.exclude("name")).first()
        )
        assert other["name"].to_list() == []


def test_a_word_that_is_also_the_name_of_the_tool_stays_evidence():
    call = {"outcome": "tool_error", "tool": "fetch", "error_text": "fetch failed"}
    assert judge(pl.DataFrame([call]))["verdict"].item() == "infrastructure"
