"""Every shipped rule agrees with its own examples, in the engine that judges archives."""

import csv
from pathlib import Path

import polars as pl
import pytest

from mcptally import rules
from mcptally.verdict import classify, hidden_errors, judge
from mcptally.verdict.examples import contradicted_failure_examples, contradicted_result_examples
from mcptally.verdict.rule_model import HiddenRule, VerdictRule
from tests.commands import run


def test_rules_about_failures_match_their_examples_and_not_their_counterexamples():
    assert contradicted_failure_examples(classify.failure_rules()) == []


@pytest.mark.slow
@pytest.mark.parametrize("rule", hidden_errors.hidden_error_rules(), ids=lambda rule: rule.id)
def test_a_rule_about_hidden_errors_decides_its_examples_and_no_counterexample(rule: HiddenRule):
    assert contradicted_result_examples(rule, hidden_errors.hidden_error_rules()) == []


def test_a_rule_id_has_group_section_and_name():
    for rule in [*classify.failure_rules(), *hidden_errors.hidden_error_rules()]:
        group, section, name = rule.id.split(".")
        assert group == ("verdict" if isinstance(rule, VerdictRule) else "hidden")
        assert section, rule.id
        assert name, rule.id


def test_no_two_rules_have_the_same_order():
    orders = [rule.order for rule in classify.failure_rules()]
    assert len(set(orders)) == len(orders)


def test_measured_counts_are_of_shipped_rules_and_reach_them():
    shipped = {
        rule.id: rule for rule in (*classify.failure_rules(), *hidden_errors.hidden_error_rules())
    }
    counts = {name: (row["hits"], row["right"]) for name, row in rules.measured().items()}
    assert counts
    assert counts == {n: (r.hits, r.right) for n, r in shipped.items() if r.hits}


def test_only_failed_calls_get_a_verdict():
    frame = pl.DataFrame(
        {
            "outcome": ["ok", "tool_error", "input_required"],
            "error_text": [None, "x not found", None],
        }
    )
    verdicts = judge(frame)
    assert verdicts.columns == list(classify.Verdicts.columns())
    assert verdicts["verdict"].to_list() == [None, "business", None]
    assert verdicts["reason"][1] == "not_found"
    assert 0 < verdicts["certainty"][1] < 100


@pytest.mark.parametrize(
    ("file", "verdict"),
    [
        ("verdict-validation.toml", "business"),
        ("verdict-refusal.toml", "business"),
        ("verdict-infrastructure.toml", "infrastructure"),
        ("verdict-crash.toml", "tool_failure"),
        ("verdict-failure.toml", "tool_failure"),
    ],
)
def test_the_name_of_a_file_of_rules_says_their_verdict(file, verdict):
    assert {rule.verdict for rule in rules.load(VerdictRule, file)} == {verdict}


def test_a_rule_that_no_labelled_call_needs_says_why_it_is_kept():
    with Path(__file__).with_name("rule_counts.csv").open(newline="") as file:
        needed = {row["rule"]: int(row["needed"]) for row in csv.DictReader(file)}
    shipped = classify.failure_rules()
    assert needed.keys() == {rule.id for rule in shipped}
    assert [rule.id for rule in shipped if needed[rule.id] <= 0 and not rule.kept_for] == []


def test_the_list_of_rules_shows_why_a_rule_is_kept():
    printed = run("rules", "verdict.network").stdout.splitlines()
    kept = {line.split()[0]: line.split()[1] for line in printed}
    assert kept["verdict.network.tls"] == "product"
    assert kept["verdict.network.address"] == "mistakes"
