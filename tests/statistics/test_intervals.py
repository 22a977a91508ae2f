"""Intervals of rates: what the SQL functions return for sums over sessions."""

import pytest

from mcptally.analytics import views


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
