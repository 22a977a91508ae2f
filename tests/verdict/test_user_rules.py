"""A user's own rule file: one row added, replaced or taken out."""

from pathlib import Path

import polars as pl
import pytest

from mcptally.errors import RuleError
from mcptally.pipeline.scoring import Judging
from mcptally.verdict import classify, hidden, hidden_errors, judge
from mcptally.verdict.rule_model import apply, read_changes

TEXT = "The moon is in the wrong house"

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


def changed(folder: Path, toml: str) -> pl.DataFrame:
    file = folder / "rules.toml"
    file.write_text(toml, encoding="utf-8")
    rows, _ = read_changes(file)
    ruleset = apply(classify.rules(), rows, where=str(file))
    frame = pl.DataFrame(
        {"outcome": ["tool_error"] * 2, "error_text": [TEXT, "connect ECONNREFUSED 1.2.3.4:5"]}
    )
    return judge(frame, ruleset)


def test_a_row_with_a_new_id_is_a_new_rule(tmp_path: Path):
    said = changed(tmp_path, ADDED)
    assert said["rule"].to_list()[0] == "verdict.mine.moon"
    assert said["verdict"].to_list() == ["tool_failure", "infrastructure"]


@pytest.mark.parametrize("name", ["moon", "mine.moon", "mine.of.the.moon"])
def test_any_id_will_do(tmp_path: Path, name: str):
    said = changed(tmp_path, ADDED.replace("verdict.mine.moon", name))
    assert said["rule"].to_list()[0] == name


def test_a_row_with_a_known_id_changes_what_it_says_and_keeps_the_rest(tmp_path: Path):
    said = changed(tmp_path, '[[rule]]\nid = "verdict.network.refused"\nverdict = "tool_failure"\n')
    assert said["rule"][1] == "verdict.network.refused"
    assert said["verdict"][1] == "tool_failure"


def test_a_changed_rule_loses_the_precision_that_was_another_rules(tmp_path: Path):
    before = changed(tmp_path, "")["confidence"][1]
    after = changed(
        tmp_path, '[[rule]]\nid = "verdict.network.refused"\nverdict = "tool_failure"\n'
    )["confidence"][1]
    assert after < before


def test_a_disabled_rule_decides_nothing(tmp_path: Path):
    said = changed(tmp_path, '[[rule]]\nid = "verdict.network.refused"\ndisabled = true\n')
    assert said["rule"][1] != "verdict.network.refused"


def test_rows_about_hidden_errors_are_told_apart_by_their_id(tmp_path: Path):
    file = tmp_path / "rules.toml"
    file.write_text(ADDED + '[[rule]]\nid = "hidden.text.marker"\ndisabled = true\n')
    failed, unmarked = read_changes(file)
    assert [row["id"] for row in failed] == ["verdict.mine.moon"]
    ruleset = apply(hidden_errors.rules(), unmarked, where=str(file))
    assert len(ruleset) == len(hidden_errors.rules()) - 1
    assert hidden(pl.DataFrame({"text": ["❌ gone"]}), ruleset)["hidden_rule"][0] is None


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("[[rule]\n", "cannot be read"),
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
        (ADDED + "hits = 2\nright = 3\n", "moon: right 3 of hits 2 cannot be"),
        (ADDED + "hits = nan\n", "moon: right 0 of hits nan cannot be"),
        (ADDED + ADDED, "moon: is here twice"),
        (
            '[[rule]]\nid = "verdict.network.refusd"\ndisabled = true\n',
            "refusd: there is none to disable; did you mean verdict.network.refused",
        ),
    ],
)
def test_a_file_that_makes_no_sense_says_where_and_why(tmp_path: Path, toml: str, says: str):
    with pytest.raises(RuleError, match=f"(?s)rules.toml: .*{says}"):
        changed(tmp_path, toml)


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


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        (ADDED.replace("the moon is in it", "the moon"), "moon: does not fire for its example"),
        (ADDED.replace("the sun", "a moon is in"), "moon: fires for its example 'a moon is in'"),
        (HIDDEN.replace("the moon is in it", "the moon"), "moon: does not fire for its example"),
        (HIDDEN.replace("the sun", "a moon is in"), "moon: fires for its example 'a moon is in'"),
        (
            ADDED.replace('["the sun"]', '[{ error_text = "the moon is in", tool = "x" }]'),
            "fires for",
        ),
        (
            '[[rule]]\nid = "verdict.network.refused"\nmatches = ["moon"]\n',
            "verdict.network.refused: does not fire for its example",
        ),
        (HIDDEN + "lines = -1\n", "moon: lines -1 cannot be"),
        (HIDDEN + "chars = 99999999999\n", "moon: chars 99999999999 cannot be"),
        (ADDED.replace('["the sun"]', "[7]"), "an example is a text or a table, not 7"),
        (ADDED.replace('["the sun"]', '[{ eror_text = "x" }]'), "did you mean error_text"),
        (ADDED.replace('["the sun"]', '[{ error_code = "x" }]'), "a value of an example cannot be"),
    ],
)
def test_a_rule_that_does_not_do_what_its_examples_say_is_refused(
    tmp_path: Path, toml: str, says: str
):
    file = tmp_path / "rules.toml"
    file.write_text(toml, encoding="utf-8")
    with pytest.raises(RuleError, match=f"rules.toml: .*{says}"):
        Judging.of(rules=file)


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
def test_a_rule_that_does_is_taken(tmp_path: Path, toml: str):
    file = tmp_path / "rules.toml"
    file.write_text(toml, encoding="utf-8")
    assert Judging.of(rules=file).rules.verdict
