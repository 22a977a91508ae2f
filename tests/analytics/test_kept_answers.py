"""Tests of `Store.keeping`: answers that are computed once."""

import polars as pl
import polars.testing
import pytest

import mcptally as mt
from mcptally.analytics import views

pytestmark = pytest.mark.slow


def test_kept_answers_equal_those_of_ask_in_any_order(sample_store: mt.Store) -> None:
    questions = ["change_points", "priorities", "servers", "server_scores", "drift"]
    asked = {question: sample_store.ask(question).pl() for question in questions}

    for order in (questions, questions[::-1]):
        kept = sample_store.keeping()
        for question in order:
            pl.testing.assert_frame_equal(kept(question).pl(), asked[question], rel_tol=1e-9)


def test_what_a_question_reads_is_kept_as_a_table() -> None:
    connection = views.connect()
    connection.execute("CREATE TABLE ten AS SELECT 10 AS n")

    views.create_questions(
        connection,
        {"twice": "-- Twice\nSELECT 2 * n AS n FROM once", "once": "-- Once\nSELECT n FROM ten"},
        computed=True,
    )
    connection.execute("UPDATE ten SET n = 11")

    assert connection.sql("SELECT once.n, twice.n FROM once, twice").fetchall() == [(10, 20)]
