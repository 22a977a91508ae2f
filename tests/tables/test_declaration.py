import polars as pl
import pytest

from mcptally.tables.declaration import Column, StageTable


class Small(StageTable):
    """One row per number."""

    number = Column(pl.Int64, "A number.", "ms")


class Larger(Small):
    """One row per number and its text."""

    text = Column(pl.String, "The number as text.")


def test_columns_of_a_base_class_come_first():
    assert list(Larger.columns()) == ["number", "text"]
    assert Larger.shared_with(Small) == ["number"]


def test_select_drops_columns_that_are_not_declared():
    data = pl.DataFrame({"other": [True], "text": ["1"], "number": [1]})
    assert Larger.select(data).columns == ["number", "text"]


def test_select_refuses_a_missing_column_and_one_of_another_type():
    with pytest.raises(TypeError, match="Larger: text is missing instead of String"):
        Larger.select(pl.DataFrame({"number": [1]}))
    with pytest.raises(TypeError, match="Larger: number is String instead of Int64"):
        Larger.select(pl.DataFrame({"number": ["1"], "text": ["1"]}))


def test_the_docstring_is_the_meaning_of_a_row():
    assert Larger.meaning == "One row per number and its text."
