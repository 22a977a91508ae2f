"""The test for changes of a rate: comparison with direct computations, and false alarms."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from mcptally.analytics import views
from mcptally.statistics import change_points

SECONDS = 100_000
"""Time of an archive."""


def calls(
    random: np.random.Generator,
    tool: int,
    *,
    sessions: int,
    mean: float = 6,
    rate: float = 0.1,
    rho: float = 0.3,
    length: float = 60,
    later: float | None = None,
    since: float = 0.5,
    until: float = 1,
    clients: int = 0,
) -> pl.DataFrame:
    """Calls to one tool, in sessions of geometric size.

    Args:
        random: source of random numbers.
        tool: number of the tool.
        sessions: number of sessions, spread over the archive.
        mean: mean number of calls of a session.
        rate: share of calls that fail.
        rho: correlation of failures within a session.
        length: seconds that a session takes.
        later: share of calls that fail in the part of the archive from `since` to `until`.
        since: as a share of the archive's time.
        until: as a share of the archive's time.
        clients: if given, number of clients whose rates differ, and whose sessions come in runs of
            five; `rho` is then the correlation of the calls of a client.
    """
    sizes = random.geometric(1 / mean, sessions) if sessions > 1 else np.array([round(mean)])
    session = np.repeat(np.arange(sessions), sizes)
    began = np.arange(sessions) / sessions * max(0, SECONDS - length)
    second = began[session] + random.random(len(session)) * length
    place = random.random(sessions)  # a session's place in the distribution of rates
    client = np.zeros(sessions, dtype=np.int64)
    if clients:
        client = random.integers(0, clients, -(-sessions // 5)).repeat(5)[:sessions]
        place = random.random(clients)[client]

    def rates(mean_rate: float) -> np.ndarray:
        from scipy.special import betaincinv

        if mean_rate in {0, 1}:
            return np.full(sessions, mean_rate)
        m = 1 / rho - 1
        return betaincinv(mean_rate * m, (1 - mean_rate) * m, place)

    chance = rates(rate)[session]
    if later is not None:
        changed = (since * SECONDS <= second) & (second < until * SECONDS)
        chance = np.where(changed, rates(later)[session], chance)
    failed = random.random(len(session)) < chance
    return pl.DataFrame(
        {
            "tool": np.full(len(session), f"t{tool}"),
            "session": [f"{tool}/{number}" for number in session],
            "client": [f"c{number}" for number in client[session]],
            "second": second,
            "failed": failed,
        }
    )


def changes(data: pl.DataFrame) -> pl.DataFrame:
    """Return the answer to the question about these calls."""
    connection = views.connect()
    connection.register("data", data)
    connection.execute(
        "CREATE TABLE _tool_calls AS SELECT tool AS server, tool, session, true AS ended, "
        "make_timestamp((1e15 + second * 1e6)::BIGINT) AT TIME ZONE 'UTC' AS requested_at, "
        "if(failed, 'tool_error', 'ok') AS outcome, if(failed, 'tool_failure', NULL) AS verdict, "
        "NULL AS template, '' AS call_id FROM data"
    )
    read = views.texts_read_by("change_points")
    del read["_tool_calls"]
    views.create_questions(connection, read)
    answer = connection.sql(views.all_texts()["change_points"]).pl()
    connection.close()
    return answer


def test_the_order_of_calls_at_one_time_does_not_matter():
    random = np.random.default_rng(3)
    at = np.repeat(np.arange(40.0), 5)
    hits = (at >= 20) * (random.random(200) < 0.9)
    series = change_points.Series(
        at, np.ones(200), hits.astype(float), np.zeros(200, int), np.arange(200) // 10
    )
    shuffled = np.lexsort((random.random(200), at))
    other = change_points.Series(*(column[shuffled] for column in series))
    expected = change_points.change_points(series)
    assert [change.at for change in expected] == [20]
    found = change_points.change_points(other)
    assert [tuple(change) for change in found] == [pytest.approx(tuple(c)) for c in expected]


@pytest.mark.slow
def test_a_change_whose_p_value_rounds_to_zero_is_found_where_it_is():
    at = np.arange(6000.0)
    hits = np.random.default_rng(6).random(6000) < np.where(at < 4500, 0.1, 1)
    series = change_points.Series(
        at, np.ones(6000), hits.astype(float), np.zeros(6000, int), np.arange(6000)
    )
    [change] = change_points.change_points(series)
    assert change.p_value == 0
    assert change.at == pytest.approx(4500, abs=3)


@pytest.mark.slow
def test_series_without_a_change_seldom_show_one():
    random = np.random.default_rng(4)
    found = 0
    for tool in range(300):
        series = series_of(calls(random, tool, sessions=40))
        found += bool(change_points.change_points(series))
    # Of 300 tests with an error probability of 1 %, 10 or more fail in 0.1 % of the cases.
    assert found < 10


def test_the_question_finds_a_change_in_calls():
    random = np.random.default_rng(5)
    found = changes(calls(random, 0, sessions=60, rate=0.05, later=0.5))
    assert set(found["direction"]) == {"worse"}


def series_of(data):
    """Return the series of simulated calls to one tool."""
    data = data.sort("second")
    return change_points.Series(
        data["second"].to_numpy(),
        np.ones(data.height),
        data["failed"].cast(float).to_numpy(),
        np.zeros(data.height, np.int64),
        data["session"].rank("dense").cast(int).to_numpy() - 1,
    )


def test_clients_with_rates_of_their_own_in_runs_are_permuted_in_blocks():
    length = []
    for clients in (0, 4):
        random = np.random.default_rng(7)
        sessions = [
            change_points._sessions(
                series_of(calls(random, 0, sessions=60, rate=0.2, clients=clients))
            )
            for _ in range(40)
        ]
        length.append([change_points._block_length(each, 30, 60) for each in sessions])
    alone, runs = (np.array(each) > 1 for each in length)
    assert alone.mean() < 0.25
    assert runs.mean() > 0.6


@pytest.mark.slow
def test_long_sessions_one_after_the_other_seldom_show_a_change():
    random = np.random.default_rng(8)
    options: dict[str, Any] = {"sessions": 12, "mean": 60, "rate": 0.2, "length": SECONDS / 12}
    found = [
        change_points.change_points(series_of(calls(random, 0, **options))) for _ in range(200)
    ]
    assert sum(map(bool, found)) < 8


@pytest.mark.slow
def test_most_changes_from_40_to_80_percent_over_60_sessions_are_found():
    random = np.random.default_rng(9)
    options: dict[str, Any] = {"sessions": 60, "rate": 0.4, "later": 0.8}
    found = [change_points.change_points(series_of(calls(random, 0, **options))) for _ in range(60)]
    assert np.mean([min((c.p_value for c in each), default=1) <= 0.005 for each in found]) > 0.65
