"""Rules that no labelled call needs are removed or say why they are kept."""

import csv
from pathlib import Path

from click.testing import CliRunner

from mcptally.cli import rules
from mcptally.verdict import classify

COUNTS = Path(__file__).with_name("rule_counts.csv")


def test_a_rule_that_no_labelled_call_needs_says_why_it_is_kept():
    with COUNTS.open(newline="") as file:
        needed = {row["rule"]: int(row["needed"]) for row in csv.DictReader(file)}
    rules = classify.failure_rules()
    assert needed.keys() == {rule.id for rule in rules}
    assert [rule.id for rule in rules if needed[rule.id] <= 0 and not rule.kept_for] == []


def test_the_list_of_rules_shows_why_a_rule_is_kept():
    printed = CliRunner().invoke(rules.command, ["verdict.network"]).output.splitlines()
    kept = {line.split()[0]: line.split()[1] for line in printed}
    assert kept["verdict.network.tls"] == "product"
    assert kept["verdict.network.address"] == "mistakes"
