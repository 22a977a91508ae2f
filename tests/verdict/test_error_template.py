"""Templates of error texts: the message without its wrappers and varying parts."""

import tomllib
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptally.verdict.error_template import MAX_TEMPLATE, templates

TEXTS = tomllib.loads(Path(__file__).with_name("error_templates.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("text", "template"), TEXTS["messages"] + TEXTS["masked"])
def test_a_template_is_what_the_error_says(text, template):
    assert templates(pl.Series([text])).to_list() == [template]


def test_no_text_has_no_template():
    found = templates(pl.Series(["", " \n", None, "x"], dtype=pl.String))
    assert found.to_list() == [None, None, None, "x"]
    assert templates(pl.Series([], dtype=pl.String)).to_list() == []


PIECES = st.sampled_from(
    [
        *(text for text, _ in TEXTS["messages"] + TEXTS["masked"]),
        *"'\"`{}[]()<>:,/\\-.\n \u2028",
        "Error: ",
        "12",
        "ab1c2d3",
        "\\'",
        "é",
        "…",
    ]
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=12).map("".join)


@given(st.lists(TEXTS, max_size=6))
def test_a_template_is_bounded_never_empty_and_its_own_template(texts):
    found = templates(pl.Series(texts, dtype=pl.String))
    for text, template in zip(texts, found, strict=True):
        if template is None:
            assert not text.strip()
        else:
            assert 0 < len(template) <= MAX_TEMPLATE
    assert templates(found).to_list() == found.to_list()
