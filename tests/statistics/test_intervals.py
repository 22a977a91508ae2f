"""Intervals of rates: what the SQL functions return for sums over sessions."""

import pytest

from mcptally.analytics import views

SESSIONS = "(VALUES (10.0, 2.0, 0.0), (4.0, 0.0, 3.0), (7.0, 1.0, 9.0), (5.0, 2.0, 0.0)) s(n, y, a)"


def macros():
    connection = views.connect()
    texts = views.all_texts()
    for name, takes in (
        ("_moments", "n, y"),
        ("_interval", "m"),
        ("_ambiguous_interval", "certain, possible"),
    ):
        connection.execute(f"CREATE MACRO {name}({takes}) AS {texts[name]}")
    return connection


def bounds(connection, where):
    return connection.sql(
        "SELECT _i, _j, _ambiguous_interval(_i, _j) FROM ("
        "SELECT _interval(_moments(n, y)) AS _i, _interval(_moments(n + a, y + a)) AS _j "
        f"FROM {SESSIONS} WHERE {where})"
    ).fetchall()[0]


def test_ambiguous_calls_widen_an_interval_to_both_sides():
    with macros() as connection:
        certain, possible, both = bounds(connection, "true")
    assert possible["high"] > certain["high"]
    assert both == {
        "low": min(certain["low"], possible["low"]),
        "high": max(certain["high"], possible["high"]),
    }


def test_without_ambiguous_calls_the_interval_is_the_same():
    with macros() as connection:
        certain, _, both = bounds(connection, "a = 0")
    assert both == {"low": certain["low"], "high": certain["high"]}


def test_a_rate_of_only_ambiguous_calls_can_be_anything():
    with macros() as connection:
        _, both = connection.sql(
            "SELECT i, _ambiguous_interval(i, j) FROM (SELECT "
            "_interval(_moments(0.0, 0.0)) AS i, _interval(_moments(n, n)) AS j "
            f"FROM {SESSIONS})"
        ).fetchall()[0]
    assert both == {"low": 0, "high": 1}


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
