"""Recorded traffic fills every declared column."""

import polars as pl
import pytest

import mcptally as mt
from mcptally.tables.all_tables import TABLES
from mcptally.tables.ui_tests import UiErrors, UiRuns, UiSteps
from mcptally.tables.validations import Validations

EMPTY = {
    "recordings": {"source": "only imported recordings have one"},
    "validations": dict.fromkeys(
        Validations.columns(), "hardly any server has a validate tool: tests/contracts records one"
    ),
    **{
        table.name: dict.fromkeys(table.columns(), "nobody recorded a UI probe: tests/contracts")
        for table in (UiRuns, UiSteps, UiErrors)
    },
    "seed_scores": {
        "validated_by": "needs a validate tool",
        "validated_as": "needs a validate tool",
        "seed_error": "only where the interpretation cannot judge",
        "inspector_error": "only where the original throws",
    },
    "calls": {
        "traceparent": "no client of the recorded traffic sends one",
        "model": "only imported calls have one",
    },
}
"""Columns that recorded traffic does not fill, and the reason."""


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_has_a_value_in_a_recording_of_a_real_server(corpus_store: mt.Store, table):
    frame = pl.read_parquet(corpus_store.path / table.name / "*.parquet")
    assert frame.schema == table.schema()
    empty = {name for name in frame.columns if frame.get_column(name).null_count() == frame.height}
    assert empty - EMPTY.get(table.name, {}).keys() == set()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_says_what_it_means(table):
    for name, column in table.columns().items():
        assert len(column.meaning) > 5, name
