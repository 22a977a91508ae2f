"""The share of secrets found in a corpus that is independent of the rules does not drop."""

import os
from collections import Counter
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


def shares(rows):
    return {name: counts["found"] / counts.total() for name, counts in rows.items()}


def test_tokens_of_known_form_are_found_in_every_place():
    kinds, places = corpus.tokens(policy(), 1)
    for name, share in shares(kinds).items():
        assert share >= 0.85 or name in KNOWN_MISSES, name
    for name, share in shares(places).items():
        assert share >= 0.9, name
    assert corpus.total(kinds)["found"] / corpus.total(kinds).total() >= 0.97


def test_values_with_a_secret_name_are_found_in_every_spelling():
    kinds, places, names = corpus.values(policy(), 1)
    for rows, least in ((kinds, 0.9), (places, 0.85), (names, 0.95)):
        for name, share in shares(rows).items():
            assert share >= least, name


def test_values_that_look_like_secrets_are_not_replaced():
    for kind, counts in corpus.look_alikes(policy(), 3).items():
        assert counts["hidden"] == 0, kind


def share(good, bad):
    return good / (good + bad)


@pytest.mark.parametrize(
    ("sources", "least"), [(public_names.USED, 0.99), (public_names.KEPT, 0.97)]
)
def test_secrets_of_public_settings_are_found_and_plain_values_kept(sources, least):
    for kind, row in corpus.public(policy(), sources, 1).items():
        if row["found"]:
            assert share(row["found"], row["missed"]) >= least, kind
        assert row["changed"] == 0, kind


def test_commands_are_redacted_and_false_positives_of_other_scanners_are_kept():
    (row,) = corpus.commands(policy(), 1).values()
    assert row["missed"] == 0
    assert row["changed"] == 0


def test_source_code_of_the_standard_library_is_kept():
    folder = Path(os.__file__).parent
    lines = sum((corpus.source_code(policy(), folder / name) for name in ("http", "email")),
                Counter())  # fmt: skip
    assert lines["kept"] > 1000
    assert lines["changed"] == 0
