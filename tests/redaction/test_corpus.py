"""The share of secrets found in a corpus that is independent of the rules does not drop."""

import os
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from mcptally.redaction.policy import policy
from tests.redaction import corpus, public_names

pytestmark = pytest.mark.slow

KNOWN_MISSES = {"Airtable", "X bearer"}
"""Tokens without a prefix, which no rule can find; see docs/explanation/redaction.md."""


@pytest.fixture(autouse=True)
def seeded():
    corpus.R.seed(7)


def shares(rows, *, by):
    """The share of secrets that were found, by one of the columns of the rows."""
    found = defaultdict(list)
    for row in rows:
        found[row[by]].append(row[-1])
    return {name: statistics.mean(each) for name, each in found.items()}


def test_tokens_of_known_form_are_found_in_every_place():
    rows = list(corpus.tokens(policy()))
    for name, share in shares(rows, by=0).items():
        assert share >= 0.85 or name in KNOWN_MISSES, name
    for name, share in shares(rows, by=1).items():
        assert share >= 0.9, name
    assert statistics.mean(row[-1] for row in rows) >= 0.97


def test_values_with_a_secret_name_are_found_in_every_spelling():
    rows = list(corpus.values(policy()))
    for column, least in enumerate((0.9, 0.85, 0.95)):
        for name, share in shares(rows, by=column).items():
            assert share >= least, name


def test_values_that_look_like_secrets_are_not_replaced():
    rows = [row for _ in range(3) for row in corpus.look_alikes(policy())]
    assert [kind for kind, replaced in rows if replaced] == []


@pytest.mark.parametrize(
    ("sources", "least"), [(public_names.USED, 0.99), (public_names.KEPT, 0.97)]
)
def test_secrets_of_public_settings_are_found_and_plain_values_kept(sources, least):
    for kind, share in shares(corpus.public_secrets(policy(), sources), by=0).items():
        assert share >= least, kind
    plain = [pair for source in sources.values() for pair in source.plain.items()]
    assert [pair for pair in plain if any(corpus.hidden(policy(), *pair))] == []


def test_commands_are_redacted_and_false_positives_of_other_scanners_are_kept():
    assert [line for line, is_found in corpus.commands(policy()) if not is_found] == []
    lines = public_names.HARMLESS_LINES
    assert [line for line in lines if policy().json(corpus.result(line))[1]] == []


def test_source_code_of_the_standard_library_is_kept():
    folder = Path(os.__file__).parent
    lines = [
        line for name in ("http", "email") for line in corpus.source_code(policy(), folder / name)
    ]
    assert len(lines) > 1000
    assert [before for before, after in lines if before != after] == []
