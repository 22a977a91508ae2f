"""Intervals of rates: what the SQL functions return for sums over sessions."""

import numpy as np
import pytest

from mcptally.analytics import views
from mcptally.statistics import intervals


def macros():
    connection = views.connect()
    texts = views.all_texts()
    for name, takes in (("_moments", "n, y"), ("_interval", "m")):
        connection.execute(f"CREATE MACRO {name}({takes}) AS {texts[name]}")
    return connection


def test_sums_of_mixed_sessions_do_not_depend_on_the_order_of_rows():
    with macros() as connection:
        sums = {
            connection.sql(
                "SELECT _moments(n, y).mixed FROM (SELECT 3.0 + i % 11 AS n, i % 3 * 1.0 AS y "
                f"FROM range(1000) r(i) ORDER BY hash(i + {seed}))"
            ).fetchall()[0][0]
            for seed in range(5)
        }
    assert len(sums) == 1
    assert sums.pop() == pytest.approx(
        sum((i % 3) * (3 + i % 11 - i % 3) / (3 + i % 11) for i in range(1000))
    )


@pytest.mark.parametrize("rate", [0.0, 1.0, 0.1, 0.7])
def test_an_interval_contains_its_rate_in_spite_of_rounding(rate):
    n_eff = np.arange(1.0, 400)
    low, high = intervals.wilson(np.full_like(n_eff, rate), n_eff, np.full_like(n_eff, 1.96))
    assert (low <= rate).all()
    assert (rate <= high).all()


def of_equal_sessions(hits, size, sessions, *pooled):
    """Return the interval of a rate for sessions with equal numbers of calls and hits."""
    n, y = size * sessions, hits * sessions
    mixed = sessions * hits * (size - hits) / size
    sums = (n, y, n * size, y * hits, n * hits, mixed, sessions, sessions if 0 < hits < size else 0)
    return intervals.rate_intervals(*(np.array([float(value)]) for value in (*sums, *pooled)))


@pytest.mark.parametrize("hits", [0, 6])
def test_where_all_calls_agree_the_correlation_is_that_of_all_tools(hits):
    known = 1e9  # from so many sessions that the prior has no weight
    assert of_equal_sessions(hits, 6, 20).n_eff == [20]
    assert of_equal_sessions(hits, 6, 20, 0.2, known).n_eff == pytest.approx([120 / (1 + 5 * 0.2)])
    assert of_equal_sessions(hits, 6, 20, 1.0, known).n_eff == pytest.approx([20])
    assert of_equal_sessions(hits, 6, 20, np.nan, 0).n_eff == [20]
    assert of_equal_sessions(hits, 6, 1, 0.0, known).n_eff == pytest.approx([1])


def test_a_long_session_does_not_count_for_less_than_a_session_each():
    """Kish's design effect of uneven sessions can exceed the mean size of a session."""
    sums = (109, 0, 9 + 100**2, 0, 0, 0, 10, 0, 1.0, 1e9)
    found = intervals.rate_intervals(*(np.array([float(value)]) for value in sums))
    assert found.n_eff == pytest.approx([10])
