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
