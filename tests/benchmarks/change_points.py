"""Measures false alarms and changes found by the question `change_points` in simulated archives.

`python -m tests.benchmarks.change_points [--archives N]` runs the question's SQL on archives of 20
tools whose sessions have correlated failures, and prints the tables of
docs/explanation/statistics.md.
"""

import argparse
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mcptally.analytics import views
from tests.analytics.built_stores import BEGAN, FAILED, build, call

TOOLS = 20
SECONDS = 100_000
"""Time of an archive."""
RUNS = "60 sessions, 4 clients with their own rates in runs of 5 sessions"
CONSTANT = {
    "10 sessions of 6 calls": {"sessions": 10},
    "60 sessions of 6 calls": {"sessions": 60},
    "60 sessions, correlation 0.6": {"sessions": 60, "rho": 0.6},
    "300 sessions, 2 % fail": {"sessions": 300, "rate": 0.02},
    "60 sessions of 30 calls": {"sessions": 60, "mean": 30},
    "10 long sessions at the same time": {"sessions": 10, "mean": 100, "length": SECONDS},
    "1 session of 100 calls": {"sessions": 1, "mean": 100, "length": SECONDS},
    "3 sessions of 50 calls, one after the other": {"sessions": 3, "mean": 50, "rate": 0.1},
    "12 long sessions, one after the other": {
        "sessions": 12,
        "mean": 60,
        "rate": 0.2,
        "length": SECONDS / 12,
    },
    RUNS: {"sessions": 60, "rate": 0.2, "clients": 4},
}
CHANGED: dict[str, dict[str, Any]] = {
    "10 % to 30 %, 30 sessions before and after": {"sessions": 60, "rate": 0.1, "later": 0.3},
    "5 % to 50 %, 30 before and after": {"sessions": 60, "rate": 0.05, "later": 0.5},
    "5 % to 100 %, 30 before, 5 after": {
        "sessions": 35,
        "rate": 0.05,
        "later": 1.0,
        "since": 30 / 35,
    },
    "5 % to 100 % for a tenth of the time, 100 sessions": {
        "sessions": 100,
        "rate": 0.05,
        "later": 1.0,
        "since": 0.5,
        "until": 0.6,
    },
    "0 % to 100 % in the middle of 12 sessions of 10 calls at the same time": {
        "sessions": 12,
        "mean": 10,
        "rate": 0.0,
        "later": 1.0,
        "length": SECONDS,
    },
    "40 % to 80 %, 30 before and after": {"sessions": 60, "rate": 0.4, "later": 0.8},
    "10 % to 30 %, 56 before and after": {"sessions": 112, "rate": 0.1, "later": 0.3},
}


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
    answer = connection.sql(views.all_texts()["change_points"]).pl()
    connection.close()
    return answer


def archive(random: np.random.Generator, of_tool: Callable[[int], dict[str, Any]]) -> pl.DataFrame:
    return pl.concat([calls(random, tool, **of_tool(tool)) for tool in range(TOOLS)])


def onsets(data: pl.DataFrame, folder: Path) -> tuple[int, int]:
    """Return how many problems in `priorities` have an onset, and how many clients explain."""
    rows = (
        call(
            row["session"],
            row["tool"],
            server=row["tool"],
            client=row["client"],
            requested_at=BEGAN + timedelta(seconds=row["second"]),
            **(FAILED | {"fault": "tool"} if row["failed"] else {}),
        )
        for row in data.to_dicts()
    )
    found = build(folder, rows).ask("priorities").pl().drop_nulls("since")
    return found.height, found["client_changed"].sum()


def main() -> None:
    """Print false alarms, and how many changes are found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archives", type=int, default=100)
    given = parser.parse_args()
    random = np.random.default_rng(20261122)
    print(f"Nothing changes, {given.archives} archives of {TOOLS} tools each")
    for name, options in CONSTANT.items():
        found = [
            changes(archive(random, lambda _, o=options: o))["tool"].n_unique()
            for _ in range(given.archives)
        ]
        share = sum(found) / TOOLS / given.archives
        alarmed = np.mean(np.array(found) > 0)
        print(f"{name}: {alarmed:.1%} of the archives and {share:.2%} of the tools have an alarm")
    with tempfile.TemporaryDirectory() as folder:
        shown = [
            onsets(archive(random, lambda _: CONSTANT[RUNS]), Path(folder) / f"{number}")
            for number in range(given.archives)
        ]
    every, said = np.array(shown).sum(0)
    print(f"{RUNS}: of {every} problems with an onset, {said} say that other clients called then")
    print(f"\n5 of {TOOLS} tools change, {given.archives} archives")
    for name, options in CHANGED.items():
        found, false, errors = set(), set(), []
        same = {key: options[key] for key in options.keys() - {"later", "since", "until"}}
        for number in range(given.archives):
            answer = changes(archive(random, lambda t, o=options, s=same: o if t < 5 else s))
            for row in answer.to_dicts():
                key = (number, row["tool"])
                if int(row["tool"].removeprefix("t")) >= 5:
                    false.add(key)
                elif row["direction"] == "worse":
                    found.add(key)
                    share = (row["changed_at"].timestamp() - 1e9) / SECONDS
                    errors.append(abs(share - options.get("since", 0.5)))
        late = f", median error {np.median(errors):.1%} of the time" if errors else ""
        print(
            f"{name}: found {len(found) / 5 / given.archives:.0%}{late}; "
            f"{len(false) / (TOOLS - 5) / given.archives:.2%} of the others have an alarm"
        )


if __name__ == "__main__":
    main()
