"""Scores of tools and servers equal numbers that are computed by hand."""

import math
import re
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from mcptally.analytics.store import Store
from tests.analytics.built_stores import (
    BEGAN,
    FAILED,
    NO_NETWORK,
    OK,
    REFUSED,
    UNCLEAR,
    Answers,
    Servers,
    build,
    call,
    definition,
    sessions,
)

SERVERS = Servers()


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> Answers:
    return SERVERS.build(tmp_path_factory.mktemp("scores") / "s")


@pytest.fixture(scope="module")
def tools(answers):
    """The scores of the tools of a server."""
    return lambda server: answers.of(server, "tool_scores")


@pytest.fixture(scope="module")
def one(tools):
    """The scores of the only tool of a server."""

    def scores(server):
        (row,) = tools(server)
        return row

    return scores


def wilson(p, n, t):
    middle = (p + t * t / (2 * n)) / (1 + t * t / n)
    half = t / (1 + t * t / n) * math.sqrt(p * (1 - p) / n + t * t / (4 * n * n))
    return middle - half, middle + half


SINGLE_CALLS = SERVERS.add(sessions([(1, 1)] * 4 + [(0, 1)] * 16))


def test_sessions_of_one_call_give_nearly_the_plain_wilson_interval(one):
    # 4 of 20 fail, one call per session: Kish's DEFF and calls per session are 1. Shown is
    # V = 20/19 * (4*0.64 + 16*0.04) / 400 = 0.008421 of the binomial 0.2*0.8/20 = 0.008, which is
    # 1.0526, so n_eff = 19. t has 2*4 degrees of freedom (2.306004), and its excess over 1.959964
    # counts by 4/5.5 * (1 - 1/1.0526) = 0.036364.
    row = one(SINGLE_CALLS)
    assert row["failure_rate"] == pytest.approx(0.2)
    assert row["confidence_n_eff"] == pytest.approx(19)
    low, high = row["failure_rate_low"], row["failure_rate_high"]
    inner = 1.959964 + 0.036364 * (2.306004 - 1.959964)
    outer = 1.959964 + 0.4 * 0.036364 * (2.306004 - 1.959964)
    assert (low, high) == pytest.approx((wilson(0.2, 19, outer)[0], wilson(0.2, 19, inner)[1]))
    assert (low, high) == pytest.approx(wilson(0.2, 19, 1.959964), abs=0.002)
    assert row["confidence"] == pytest.approx(80)
    assert (row["confidence_low"], row["confidence_high"]) == pytest.approx(
        (100 - 100 * high, 100 - 100 * low)
    )
    assert row["failure_rate_insufficient_data"] is False
    assert row["confidence_insufficient_data"] is False
    assert row["success_rate"] == pytest.approx(0.8)
    assert (row["success_rate_low"], row["success_rate_high"]) == pytest.approx((1 - high, 1 - low))
    assert (row["calls"], row["ok"], row["sessions_with_failure"]) == (20, 16, 4)


@pytest.fixture(scope="module")
def clients(answers):
    return answers.store.ask("clients").pl().rows_by_key("client", named=True, unique=True)


@pytest.mark.parametrize(
    ("client", "server"),
    [
        (name, SERVERS.add(row | {"client": name} for row in sessions(counts)))
        for name, counts in {
            "single calls": [(1, 1)] * 4 + [(0, 1)] * 16,
            "whole sessions fail": [(10, 10)] * 2 + [(0, 10)] * 8,
            "one session": [(3, 10)],
            "a long session": [(1, 3), (2, 7), (0, 40)],
        }.items()
    ],
)
def test_a_rate_of_any_other_question_has_the_same_interval(clients, one, client, server):
    client = clients[client]
    row = one(server)
    for end in ("", "_low", "_high"):
        assert client[f"success_rate{end}"] == pytest.approx(row[f"success_rate{end}"])
    assert client["invalid_input_rate_low"] is None


TOGETHER = SERVERS.add(sessions([(10, 10)] * 2 + [(0, 10)] * 8))


def test_failures_that_come_together_count_less(one):
    # Two sessions of ten fail wholly: no session has both results, so the correlation is 1 and
    # DEFF 1000/100 = 10. Shown is more: u = 8 (2 times), -2 (8 times), V = 10/9 * (2*64 + 8*4) /
    # 100^2 = 0.017778 is 11.11 times the binomial 0.0016; n_eff 9. Two sessions fail, so t has 4
    # degrees of freedom (2.776445), and its excess counts by 2/3.5 * (1 - 1/11.11) = 0.52.
    row = one(TOGETHER)
    assert row["failure_rate"] == pytest.approx(0.2)
    assert row["confidence_n_eff"] == pytest.approx(9)
    excess = 0.52 * (2.776445 - 1.959964)
    low = wilson(0.2, 9, 1.959964 + 0.4 * excess)[0]
    high = wilson(0.2, 9, 1.959964 + excess)[1]
    assert (row["failure_rate_low"], row["failure_rate_high"]) == pytest.approx((low, high))
    assert row["failure_rate_insufficient_data"] is True


COUNTS = [(3, 4), (0, 9), (2, 5), (1, 8), (0, 3), (6, 6)]
MIRRORED = SERVERS.add(sessions(COUNTS)), SERVERS.add(sessions((n - k, n) for k, n in COUNTS))


def test_failures_and_successes_have_mirrored_intervals(one):
    fails, works = map(one, MIRRORED)
    assert fails["failure_rate_low"] == pytest.approx(1 - works["failure_rate_high"])
    assert fails["failure_rate_high"] == pytest.approx(1 - works["failure_rate_low"])


FEW_SESSIONS = SERVERS.add(sessions([(12, 60), (8, 20), (0, 20)]))


def test_with_few_failing_sessions_a_session_counts_as_few_calls(one):
    # Hits times misses: 12*48/60 + 8*12/20 = 14.4, so the correlation is 1 - 14.4/(97*0.16) =
    # 0.0722; DEFF 1 + 43*0.0722 = 4.1031, and 100/3 if a session counts as one call.
    # Two sessions fail: 4.1031^(2/3.5) * (100/3)^(1.5/3.5), and t has 2 degrees of freedom
    # (4.302653). Shown is u = 0, 4, -4, which is
    # 3/2*32/100/0.16 = 3.
    row = one(FEW_SESSIONS)
    effect = 4.1031 ** (2 / 3.5) * (100 / 3) ** (1.5 / 3.5)
    assert row["confidence_n_eff"] == pytest.approx(100 / effect, rel=1e-4)
    t = 1.959964 + (2 / 3.5) * (1 - 1 / effect) * (4.302653 - 1.959964)
    assert row["failure_rate_high"] == pytest.approx(wilson(0.2, 100 / effect, t)[1], rel=1e-4)


LONG_SESSIONS_FAIL = SERVERS.add(sessions([(15, 30)] * 6 + [(0, 3)] * 100))


def test_the_interval_is_wider_if_only_long_sessions_fail(one):
    # Hits times misses: 6*15*15/30 = 45 is a correlation of 0.21 and a DEFF of 4.6 with the weight
    # of six sessions. Shown is u = 15 - 30*p (6 times), -3*p (100 times) with p = 90/480.
    row = one(LONG_SESSIONS_FAIL)
    p = 90 / 480
    shown = 106 / 105 * (6 * (15 - 30 * p) ** 2 + 100 * (3 * p) ** 2) / 480 / (p * (1 - p))
    assert shown == pytest.approx(7.7, abs=0.05)
    assert row["confidence_n_eff"] == pytest.approx(480 / shown)


NO_FAILURE = SERVERS.add(sessions([(0, 5)] * 12))


def test_without_a_failure_the_bound_is_exact_and_a_session_counts_as_one_call_at_least(one):
    row = one(NO_FAILURE)
    assert 12 < row["confidence_n_eff"] < 60
    bound = 1 - 0.025 ** (1 / row["confidence_n_eff"])
    assert (row["confidence_low"], row["confidence_high"]) == pytest.approx(
        (100 - 100 * bound, 100)
    )


LIMITS_OF_DATA = {
    SERVERS.add(sessions([(1, 1)] * 9)): True,
    SERVERS.add(sessions([(1, 1)] * 10)): False,
    SERVERS.add(sessions([(1, 1)] * 10 + [(0, 1)] * 10)): True,  # width 0.401
    SERVERS.add(sessions([(1, 1)] * 11 + [(0, 1)] * 11)): False,  # width 0.386
}


@pytest.mark.parametrize(("server", "few"), LIMITS_OF_DATA.items())
def test_a_rate_needs_ten_independent_calls_and_an_interval_of_at_most_0_4(one, server, few):
    assert one(server)["failure_rate_insufficient_data"] is few


ONE_SESSION = SERVERS.add(sessions([(300, 1000)]))


def test_one_session_is_one_observation_however_many_calls(one):
    row = one(ONE_SESSION)
    assert (
        row["failure_rate"],
        row["confidence_n_eff"],
        row["failure_rate_insufficient_data"],
    ) == (0.3, 1, True)


HIDDEN = {"outcome": "hidden_error", "verdict": "tool_failure"}


KINDS = [FAILED, HIDDEN, REFUSED, NO_NETWORK, UNCLEAR, OK, OK]
KINDS += [{"outcome": outcome} for outcome in ("cancelled", "input_required", "task")]
EACH_KIND = SERVERS.add(call(i, **kind) for i, kind in enumerate(KINDS))


def test_each_rate_counts_the_calls_that_its_question_is_about(one):
    row = one(EACH_KIND)
    assert (row["calls"], row["ok"], row["tool_failures"]) == (10, 2, 2)
    # Of 10 calls, 7 were answered or failed; of these, 4 worked or failed because of the tool.
    assert row["success_rate"] == pytest.approx(2 / 7)
    assert row["confidence"] == pytest.approx(100 * 2 / 4)
    assert row["failure_rate"] == pytest.approx(2 / 10)
    for name in ("refusal_rate", "infrastructure_rate", "ambiguous_rate", "hidden_error_rate"):
        assert row[name] == pytest.approx(1 / 10)
    assert (row["business"], row["infrastructure"], row["ambiguous"], row["hidden_errors"]) == (
        (1, 1, 1, 1)
    )


@pytest.mark.parametrize(
    ("kind", "server"),
    [
        (kind, SERVERS.add(call(n, **kind) for n in range(40)))
        for kind in (NO_NETWORK, REFUSED, UNCLEAR, {"outcome": "cancelled"})
    ],
    ids=["network", "refused", "ambiguous", "cancelled"],
)
def test_a_tool_that_could_not_show_itself_has_no_confidence(one, kind, server):
    row = one(server)
    for end in ("", "_low", "_high", "_shrunk"):
        assert row[f"confidence{end}"] is None
    assert row["confidence_insufficient_data"] is True
    assert (row["ok"], row["failure_rate"]) == (0, 0)
    if kind["outcome"] == "cancelled":
        assert row["success_rate"] is None
    else:
        assert (row["success_rate"], row["success_rate_insufficient_data"]) == (0, False)


SURE = sessions([(1, 1)] * 10 + [(0, 1)] * 60)
WORST = sessions([(1, 1)] * 30 + [(0, 1)] * 60)
AMBIGUOUS = [call(100 + n, **UNCLEAR) for n in range(20)]
WIDENED = SERVERS.add(SURE), SERVERS.add(WORST), SERVERS.add(SURE + AMBIGUOUS)


def test_ambiguous_failures_widen_the_interval_of_confidence_to_the_low_side(one):
    sure, worst, unclear = map(one, WIDENED)
    assert unclear["confidence"] == pytest.approx(sure["confidence"])
    assert unclear["confidence_high"] == pytest.approx(sure["confidence_high"])
    assert unclear["confidence_low"] == pytest.approx(worst["confidence_low"])
    assert unclear["confidence_low"] < sure["confidence_low"] - 10
    assert unclear["ambiguous_rate"] == pytest.approx(20 / 90)


CLEAR = sessions([(0, 1)] * 40)
CLEAR_ONLY = SERVERS.add(CLEAR)
HALF_AMBIGUOUS = SERVERS.add(CLEAR + [call(100 + n, **UNCLEAR) for n in range(40)])


def test_ambiguous_failures_alone_can_leave_too_little_data_for_a_confidence(one):
    assert one(CLEAR_ONLY)["confidence_insufficient_data"] is False
    row = one(HALF_AMBIGUOUS)
    assert row["confidence_insufficient_data"] is True
    assert row["success_rate_insufficient_data"] is False


COSTS = SERVERS.add(
    call(i, name, **kind)
    for name, kind, n in (
        ("refuses 11", REFUSED, 11),
        ("unclear 5", UNCLEAR, 5),
        ("down 4", NO_NETWORK, 4),
        ("fails 3", FAILED, 3),
        ("refuses 9", REFUSED, 9),
        ("works", OK, 50),
    )
    for i in range(n)
)


def test_tools_that_cost_callers_most_come_first_and_refusals_count_a_quarter(tools):
    assert [row["tool"] for row in tools(COSTS)] == [
        *("unclear 5", "down 4", "fails 3", "refuses 11", "refuses 9", "works")
    ]


NAMELESS = SERVERS.add(
    [
        call(1, None),
        call(1, server=None),
        call(2, server=None, **FAILED),
        call(1, method="ping"),
    ]
)


def test_calls_without_a_tool_or_server_break_nothing(answers, tools):
    assert tools(NAMELESS) == answers.of(NAMELESS, "server_scores") == []
    (row,) = tools(None)
    assert (row["tool"], row["calls"], row["failure_rate"]) == ("t", 2, 0.5)
    (server,) = answers.of(None, "server_scores")
    assert (server["calls"], server["confidence_tool_mean"]) == (2, 50)


STEADY = [
    row
    for number in range(8)  # eight tools that fail in one of ten
    for row in sessions([(1, 1)] * 3 + [(0, 1)] * 27, f"steady{number}")
]
SMALL = SERVERS.add(STEADY + sessions([(1, 1)] + [(0, 1)] * 2, "small"))


def test_shrinkage_moves_small_tools_towards_the_mean(tools):
    found = {row["tool"]: row for row in tools(SMALL)}
    small, steady = found["small"], found["steady0"]
    assert small["confidence"] == pytest.approx(100 * 2 / 3)
    assert 85 < small["confidence_shrunk"] < 90
    assert steady["confidence_shrunk"] == pytest.approx(90, abs=1)
    assert small["confidence_shrunk_low"] < 90 < small["confidence_shrunk_high"]


KLEINMAN = SERVERS.add(
    row
    for number in range(1, 9)
    for row in sessions([(1, 1)] * number + [(0, 1)] * (30 - number), f"t{number}")
)


def test_shrinkage_follows_kleinmans_moments(tools):
    # Eight tools fail 1 to 8 times in 30 sessions, each worth 29 calls: Kleinman's moments.
    rates = [number / 30 for number in range(1, 9)]
    p = sum(rates) / 8
    spread = 29 * sum((rate - p) ** 2 for rate in rates)
    rho = (spread / (p * (1 - p)) - 7) / (8 * 29 - 29 - 7)
    typical, weight = (8 * 29 * p + 0.5) / (8 * 29 + 1), 1 / rho - 1
    expected = [100 - 100 * (29 * rate + weight * typical) / (29 + weight) for rate in rates]
    found = {row["tool"]: row["confidence_shrunk"] for row in tools(KLEINMAN)}
    assert [found[name] for name in sorted(found)] == pytest.approx(expected)


LUCK = SERVERS.add(
    sessions([(1, 1)] * 20 + [(0, 1)] * 20, "bad")
    + sessions([(1, 1)], "unlucky")
    + sessions([(0, 1)] * 40, "good")
    + sessions([(0, 1)], "lucky")
)


def test_ranks_are_by_the_bounds_of_the_shrunk_rate(tools):
    found = tools(LUCK)
    assert min(found, key=lambda row: row["rank_worst"])["tool"] == "bad"
    assert min(found, key=lambda row: row["rank_best"])["tool"] == "good"


TWO_TOOLS = SERVERS.add(sessions([(1, 1)] * 10, "rare") + sessions([(0, 9)] * 10, "busy"))


def test_a_server_has_the_mean_of_its_calls_and_of_its_tools(answers):
    (row,) = answers.of(TWO_TOOLS, "server_scores")
    assert row["confidence"] == pytest.approx(90)
    assert row["confidence_tool_mean"] == pytest.approx(50)
    assert row["confidence_tool_mean_low"] < 50 < row["confidence_tool_mean_high"]


UNKNOWN_NAME = REFUSED | {"error_text": "Unknown tool: imagined"}


IMAGINED = [call(n, "imagined", client=f"c{n % 2}", **UNKNOWN_NAME) for n in range(10)]
UNLISTED = SERVERS.add(
    sessions([(0, 1)] * 10, "real") + IMAGINED, [definition("real"), definition("imagine")]
)


@pytest.fixture(scope="module")
def named(tools):
    """The names of the tools of a server."""
    return lambda server: sorted(row["tool"] for row in tools(server))


def test_a_name_that_no_listing_has_is_not_a_tool(answers, named):
    assert named(UNLISTED) == ["real"]
    (server,) = answers.of(UNLISTED, "server_scores")
    assert (server["confidence_tool_mean"], server["tools"], server["tools_listed"]) == (100, 1, 2)
    assert (server["calls"], server["unlisted_calls"], server["business"]) == (20, 10, 10)
    (name,) = answers.of(UNLISTED, "unlisted_names")
    assert (name["name"], name["calls"], name["sessions"]) == ("imagined", 10, 10)
    assert (name["clients"], name["outcome"], name["verdict"]) == (
        (["c0", "c1"], "tool_error", "business")
    )
    assert (name["example"], name["similar_tool"]) == ("Unknown tool: imagined", "imagine")


LATER = BEGAN + timedelta(days=1)
REFUSALS = [call(n, "gated", **REFUSED) for n in range(9)]
REAL = [definition("real")]


@pytest.mark.parametrize(
    ("server", "later"),
    [
        (
            SERVERS.add([*REFUSALS, call(9, "gated", outcome=outcome)], REAL),
            SERVERS.add([*REFUSALS, call(9, "gated", outcome=outcome, requested_at=LATER)], REAL),
        )
        for outcome in ("ok", "task", "input_required")
    ],
    ids=["ok", "task", "input_required"],
)
def test_a_name_that_worked_once_is_a_tool_whatever_the_listings_say(answers, named, server, later):
    assert named(server) == ["gated"]
    assert answers.of(server, "unlisted_names") == []
    until = answers.of(later, "tool_scores", until=LATER)
    assert [row["tool"] for row in until] == ["gated"], "a filter does not change what is a tool"


MAYBE = [call(n, "maybe", **REFUSED) for n in range(9)]
OTHER_LABEL = definition("maybe", server="http", server_name="git")
LISTINGS = {
    "no listing": ([], ["maybe"]),
    "a listing of another server": ([definition("real", server="other")], ["maybe"]),
    "the first page": ([definition("real", complete=False)], ["maybe"]),
    "a later listing": ([definition("real"), definition("maybe", first_seen=LATER)], ["maybe"]),
    "one of another server, and one that lacks it": ([definition("real"), OTHER_LABEL], []),
    "one of this server under another label": (
        [definition("real"), OTHER_LABEL],
        ["maybe"],
        [{"recording": "0", "server": "s", "server_name": "git"}],
    ),
}


@pytest.mark.parametrize(
    ("server", "names"),
    [
        (SERVERS.add(MAYBE, listing, *recordings), names)
        for listing, names, *recordings in LISTINGS.values()
    ],
    ids=LISTINGS,
)
def test_a_name_stays_a_tool_without_a_whole_listing_that_lacks_it(named, server, names):
    assert named(server) == names


ENOUGH = {
    (29, 40): "",
    (30, 40): "p50",
    (60, 3): "p50",
    (60, 4): "p50 p95",
    (299, 4): "p50 p95",
    (300, 4): "p50 p95 p99",
}
"""Number of sessions and of calls per session → the quantiles that have an interval."""


@pytest.mark.parametrize(
    ("server", "known"),
    [
        (
            SERVERS.add(
                call(s, latency_ms=10.0 + (s * 7919 + i * 104729) % 997)
                for s in range(there)
                for i in range(calls)
            ),
            known,
        )
        for (there, calls), known in ENOUGH.items()
    ],
    ids=[f"{there} sessions of {calls}" for there, calls in ENOUGH],
)
def test_latency_quantiles_have_intervals_where_enough_calls_lie_beyond(one, server, known):
    row = one(server)
    for name in ("p50", "p95", "p99"):
        value, low, high = (row[f"latency_{name}_ms{end}"] for end in ("", "_low", "_high"))
        assert (low is not None) == (high is not None) == (name in known.split())
        if low is not None:
            assert low < value < high


TIMES = [float(n * n) for n in range(1, 12)]
SQUARES = SERVERS.add(call(n, latency_ms=time) for n, time in enumerate(TIMES))


def test_a_quantile_is_interpolated_as_numpy_does(one):
    row = one(SQUARES)
    found = [row[f"latency_{name}_ms"] for name in ("p50", "p95", "p99")]
    assert found == pytest.approx(np.quantile(TIMES, (0.5, 0.95, 0.99)).tolist())


RETRIES = SERVERS.add(
    [
        call(1, **FAILED, call_id="a", attempt_of="a"),
        call(
            1,
            attempt_of="a",
            attempt_why="retry",
            latency_ms=500.0,
            response_tokens=30,
            request_bytes=40,
        ),
        call(2, **FAILED, call_id="b", attempt_of="b"),
        call(2, **FAILED, attempt_of="b", attempt_why="retry", latency_ms=250.0),
        call(2, **FAILED, attempt_of="b", attempt_why="retry", latency_ms=250.0),
    ]
)


def test_retries_are_counted_with_what_they_cost(one):
    row = one(RETRIES)
    assert (row["retries"], row["retried_calls"], row["recovered_calls"]) == (3, 2, 1)
    assert (row["retry_seconds"], row["retry_tokens"]) == (1.0, 40)


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> Store:
    return build(tmp_path_factory.mktemp("empty") / "s", [])


@pytest.mark.parametrize("question", ["tool_scores", "server_scores", "timeline", "change_points"])
def test_an_empty_store_has_scores_without_rows(empty, question):
    assert empty.ask(question).fetchall() == []


def test_every_score_is_documented(empty):
    page = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "statistics.md"
    words = set(re.findall(r"`(\w+)`", page.read_text(encoding="utf-8")))
    for question in ("tool_scores", "server_scores"):
        names = {
            re.sub(r"_(low|high|insufficient_data)$", "", name)
            for name in empty.ask(question).columns
        }
        assert names - words - {"server", "tool"} == set()
