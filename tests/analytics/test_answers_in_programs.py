"""Answers as programs use them: in charts, pickled, and after the store is closed."""

import pickle

import altair as alt
import duckdb
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import mcptally as mt

pytestmark = pytest.mark.slow


def test_an_answer_is_data_for_altair_polars_and_arrow(sample_store: mt.Store):
    answer = mt.open_store(sample_store.path).ask("server_scores")
    chart = alt.Chart(answer).mark_bar().encode(x="server:N", y="calls:Q").to_dict()
    [rows] = chart["datasets"].values()
    assert [row["server"] for row in rows] == answer.pl().get_column("server").to_list()
    # Two runs of a query may add floats in another order.
    assert_frame_equal(pl.DataFrame(answer), answer.pl(), rel_tol=1e-9)
    assert isinstance(answer.arrow(), pa.Table)


def test_pickling_an_answer_says_what_to_pickle(sample_store: mt.Store):
    answer = mt.open_store(sample_store.path).ask("server_scores")
    with pytest.raises(TypeError, match=r"pickle what \.pl\(\) or \.arrow\(\) returns"):
        pickle.dumps(answer)
    rows = answer.pl()
    assert pickle.loads(pickle.dumps(rows)).equals(rows)  # noqa: S301  (our own)


def test_a_with_block_closes_the_store(sample_store: mt.Store):
    with mt.open_store(sample_store.path) as store:
        answer = store.ask("server_scores")
        height = answer.pl().height
    with pytest.raises(duckdb.ConnectionException):
        answer.pl()
    assert store.ask("server_scores").pl().height == height
