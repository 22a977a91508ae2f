"""The table `usage` equals the aggregates that SQL computes from calls."""

import datetime
import math
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import mcptally as mt
from mcptally.analytics.views import connect, create_questions, create_tables, texts_of
from mcptally.tables.usage import Usage
from mcptally.tables.usage_sums import KEYS
from tests.transcripts import c2s, call, opened, s2c, text, write

ALL = {"since": datetime.date(2000, 1, 1)}
"""A filter that keeps every call that has a time, so that SQL computes the aggregates."""


def tidy(frame: pl.DataFrame) -> pl.DataFrame:
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    return Usage.frame(frame).with_columns(pl.col(lists).list.sort()).sort(KEYS, nulls_last=True)


def of_both(store: mt.Store, columns: str) -> list[pl.DataFrame]:
    """Return columns of the stored table, and of the one that SQL computes."""
    with connect() as connection:
        create_tables(connection, store.files)
        create_questions(connection, texts_of("_usage"))
        names = ("usage", "_usage")
        return [connection.sql(f"SELECT {columns} FROM {name}").pl() for name in names]


def test_polars_and_sql_compute_the_same_rows(store: mt.Store):
    kept, made = of_both(store, "*")
    assert kept.height > 100
    assert kept["retried_calls"].sum() > 0
    assert_frame_equal(tidy(kept), tidy(made), rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("question", ["tool_scores", "seed_server_scores"])
def test_an_answer_from_usage_equals_the_answer_from_calls(store: mt.Store, question):
    kept, made = store.ask(question).pl(), store.ask(question, **ALL).pl()
    assert kept.height > 10
    assert_frame_equal(kept, made, rel_tol=1e-9)


@pytest.mark.slow
def test_an_empty_response_does_not_count_as_sized(tmp_path: Path):
    events = [opened()]
    for number, size in enumerate([0, 1, 100], 1):
        events.append(c2s(2 * number - 1, call(number)))
        events.append(s2c(2 * number, text(number), bytes=size))
    mt.score([write(tmp_path / "a.jsonl", events)], out=tmp_path / "store")
    for found in of_both(mt.open_store(tmp_path / "store"), "sum(sized), sum(ln_response_bytes)"):
        assert found.rows() == [(2, pytest.approx(math.log(100)))]
