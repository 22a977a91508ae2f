"""A user's rule file adds, changes or disables rules."""

from pathlib import Path

import polars as pl
import pytest

from mcptally.errors import RuleError
from mcptally.pipeline.scoring import ScoringRules
from mcptally.verdict import classify, find_hidden_errors, hidden_errors, judge
from mcptally.verdict.rule_model import apply, parse_changes

TEXT = "the moon is in retrograde motion"

ADDED = """
[[rule]]
id = "verdict.mine.moon"
title = "Astrology"
source = "me"
order = 1
verdict = "tool_failure"
reason = "astrology"
matches = ['moon is in']
fires = ["the moon is in it"]
silent = ["the sun"]
"""
HIDDEN = """
[[rule]]
id = "hidden.mine.moon"
title = "Astrology"
source = "me"
order = 1
matches = ['moon is in']
fires = ["the moon is in it"]
silent = ["the sun"]
"""


def verdicts(toml: str) -> pl.DataFrame:
    rows, _ = parse_changes(toml, "rules.toml")
    ruleset = apply(classify.failure_rules(), rows, where="rules.toml")
    frame = pl.DataFrame(
        {"outcome": ["tool_error"] * 2, "error_text": [TEXT, "connect ECONNREFUSED 1.2.3.4:5"]}
    )
    return judge(frame, ruleset)


def test_a_row_with_a_new_id_adds_a_rule():
    judged = verdicts(ADDED)
    assert judged["rule"].to_list()[0] == "verdict.mine.moon"
    assert judged["verdict"].to_list() == ["tool_failure", "infrastructure"]


@pytest.mark.parametrize("name", ["moon", "mine.moon", "mine.of.the.moon"])
def test_a_user_rule_may_have_any_id(name: str):
    judged = verdicts(ADDED.replace("verdict.mine.moon", name))
    assert judged["rule"].to_list()[0] == name


def test_a_row_with_a_known_id_changes_its_fields_and_not_its_others_but_the_precision():
    change = '[[rule]]\nid = "verdict.network.refused"\nverdict = "tool_failure"\n'
    before, after = (verdicts(toml).row(1, named=True) for toml in ("", change))
    assert after["rule"] == before["rule"] == "verdict.network.refused"
    assert after["verdict"] == "tool_failure"
    assert after["certainty"] < before["certainty"], "it was measured for another verdict"
    rows, _ = parse_changes(change, "rules.toml")
    rules = apply(classify.failure_rules(), rows, where="rules.toml")
    assert [rule.hits for rule in rules if rule.id == "verdict.network.refused"] == [0]


def test_a_rule_of_a_user_is_only_evidence_if_it_says_so():
    late = ADDED.replace("order = 1", "order = 989").replace("tool_failure", "infrastructure")
    alone, weighed = (verdicts(late + more) for more in ("", "decides = false\n"))
    assert (alone["verdict"][0], weighed["verdict"][0]) == ("infrastructure", "business")
    assert "verdict.mine.moon" in weighed["evidence"].to_list()[0]


def test_a_disabled_rule_decides_nothing():
    judged = verdicts('[[rule]]\nid = "verdict.network.refused"\ndisabled = true\n')
    assert judged["rule"][1] != "verdict.network.refused"


def test_rows_about_hidden_errors_are_recognised_by_their_id():
    toml = ADDED + '[[rule]]\nid = "hidden.text.marker"\ndisabled = true\n'
    about_failures, about_results = parse_changes(toml, "rules.toml")
    assert [row["id"] for row in about_failures] == ["verdict.mine.moon"]
    ruleset = apply(hidden_errors.hidden_error_rules(), about_results, where="rules.toml")
    assert len(ruleset) == len(hidden_errors.hidden_error_rules()) - 1
    assert (
        find_hidden_errors(pl.DataFrame({"text": ["❌ gone"]}), ruleset)["hidden_rule"][0] is None
    )


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[[rule]\n", "is not TOML"),
        ("[[regel]]\nid = 'a'\n", "unknown table"),
        ("[[rule]]\ntitle = 'x'\n", "has no id"),
        (ADDED.replace("tool_failure", "tool_failur"), "did you mean tool_failure"),
        (ADDED.replace("moon is in", "moon ("), "pattern"),
        (ADDED.replace("source", "sauce"), "unknown field"),
        (ADDED.replace('fires = ["the moon is in it"]', ""), "example"),
        (ADDED.replace("order = 1", ""), "order"),
        (ADDED.replace("order = 1", "order = 'first'"), "moon: .*order"),
        (ADDED.replace("['moon is in']", "'moon is in'"), "moon: .*matches"),
        (ADDED + "codes = ['-32602']", "moon: .*codes"),
        (ADDED + "statuses = ['5xx']", "moon: statuses '5xx'"),
        (ADDED + "hits = 2\nright = 3\n", "moon: right 3 must be between 0 and hits 2"),
        (ADDED + "hits = nan\n", "moon: right 0 must be between 0 and hits nan"),
        (ADDED + ADDED, "moon: two rows have this id"),
        (
            '[[rule]]\nid = "verdict.network.refusd"\ndisabled = true\n',
            "refusd: cannot disable .*; did you mean verdict.network.refused",
        ),
        (ADDED.replace("the moon is in it", "the moon"), "moon: does not match its example"),
        (ADDED.replace("the sun", "a moon is in"), "moon: matches its example 'a moon is in'"),
        (HIDDEN.replace("the moon is in it", "the moon"), "moon: does not match its example"),
        (HIDDEN.replace("the sun", "a moon is in"), "moon: matches its example 'a moon is in'"),
        (
            ADDED.replace('["the sun"]', '[{ error_text = "the moon is in", tool = "x" }]'),
            "moon: matches its example",
        ),
        (
            '[[rule]]\nid = "verdict.network.refused"\nmatches = ["moon"]\n',
            "verdict.network.refused: does not match its example",
        ),
        (HIDDEN + "lines = -1\n", "moon: lines -1 must be from 0"),
        (HIDDEN + "chars = 99999999999\n", "moon: chars 99999999999 must be from 0"),
        (ADDED.replace('["the sun"]', "[7]"), "an example must be a text or a table, not 7"),
        (ADDED.replace('["the sun"]', '[{ eror_text = "x" }]'), "did you mean error_text"),
        (
            ADDED.replace('["the sun"]', '[{ error_code = "x" }]'),
            "a value in an example has the wrong type",
        ),
    ],
)
def test_an_invalid_rule_file_gives_an_error_with_place_and_reason(
    tmp_path: Path, toml: str, message: str
):
    file = tmp_path / "rules.toml"
    file.write_text(toml, encoding="utf-8")
    with pytest.raises(RuleError, match=f"(?s)rules.toml: .*{message}"):
        ScoringRules.of(rules=file)


@pytest.mark.parametrize(
    "toml",
    [
        ADDED + HIDDEN,
        '[[rule]]\nid = "verdict.network.refused"\ndisabled = true\n',
        '[[rule]]\nid = "verdict.network.refused"\nverdict = "tool_failure"\n',
        '[[rule]]\nid = "hidden.text.unusual"\nlines = 2\n',
        ADDED.replace("verdict.mine.moon", "verdict.network.refused"),
        HIDDEN.replace("the sun", r"the sun\nthe moon is in it") + "where = 'first_line'\n",
    ],
)
def test_a_rule_that_agrees_with_its_examples_is_accepted(tmp_path: Path, toml: str):
    file = tmp_path / "rules.toml"
    file.write_text(toml, encoding="utf-8")
    assert ScoringRules.of(rules=file).rules.verdict
