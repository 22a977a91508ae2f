"""Scores of tools and servers equal numbers that are computed by hand."""

import math
import re
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from tests.analytics.built_stores import (
    BEGAN,
    FAILED,
    NO_NETWORK,
    OK,
    REFUSED,
    UNCLEAR,
    build,
    call,
    definition,
    sessions,
)


def tools(store):
    return store.ask("tool_scores").pl()


def one(store):
    (row,) = tools(store).to_dicts()
    return row


def wilson(p, n, t):
    middle = (p + t * t / (2 * n)) / (1 + t * t / n)
    half = t / (1 + t * t / n) * math.sqrt(p * (1 - p) / n + t * t / (4 * n * n))
    return middle - half, middle + half


def test_sessions_of_one_call_give_nearly_the_plain_wilson_interval(tmp_path):
    # 4 of 20 fail, one call per session: Kish's DEFF and calls per session are 1. Shown is
    # V = 20/19 * (4*0.64 + 16*0.04) / 400 = 0.008421 of the binomial 0.2*0.8/20 = 0.008, which is
    # 1.0526, so n_eff = 19. t has 2*4 degrees of freedom (2.306004), and its excess over 1.959964
    # counts by 4/5.5 * (1 - 1/1.0526) = 0.036364.
    row = one(build(tmp_path / "s", sessions([(1, 1)] * 4 + [(0, 1)] * 16)))
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


@pytest.mark.parametrize(
    "counts",
    [
        [(1, 1)] * 4 + [(0, 1)] * 16,
        [(10, 10)] * 2 + [(0, 10)] * 8,
        [(0, 5)] * 12,
        [(3, 10)],
        [(1, 3), (2, 7), (0, 40)],
    ],
)
def test_a_rate_of_any_other_question_has_the_same_interval(tmp_path, counts):
    store = build(tmp_path / "s", [row | {"client": "c"} for row in sessions(counts)])
    [client] = store.ask("clients").pl().to_dicts()
    row = one(store)
    for end in ("", "_low", "_high"):
        assert client[f"success_rate{end}"] == pytest.approx(row[f"success_rate{end}"])
    assert client["invalid_input_rate_low"] is None


def test_failures_that_come_together_count_less(tmp_path):
    # Two sessions of ten fail wholly: no session has both results, so the correlation is 1 and
    # DEFF 1000/100 = 10. Shown is more: u = 8 (2 times), -2 (8 times), V = 10/9 * (2*64 + 8*4) /
    # 100^2 = 0.017778 is 11.11 times the binomial 0.0016; n_eff 9. Two sessions fail, so t has 4
    # degrees of freedom (2.776445), and its excess counts by 2/3.5 * (1 - 1/11.11) = 0.52.
    row = one(build(tmp_path / "s", sessions([(10, 10)] * 2 + [(0, 10)] * 8)))
    assert row["failure_rate"] == pytest.approx(0.2)
    assert row["confidence_n_eff"] == pytest.approx(9)
    excess = 0.52 * (2.776445 - 1.959964)
    low = wilson(0.2, 9, 1.959964 + 0.4 * excess)[0]
    high = wilson(0.2, 9, 1.959964 + excess)[1]
    assert (row["failure_rate_low"], row["failure_rate_high"]) == pytest.approx((low, high))
    assert row["failure_rate_insufficient_data"] is True


def test_failures_and_successes_have_mirrored_intervals(tmp_path):
    counts = [(3, 4), (0, 9), (2, 5), (1, 8), (0, 3), (6, 6)]
    fails = one(build(tmp_path / "f", sessions(counts)))
    works = one(build(tmp_path / "w", sessions((n - k, n) for k, n in counts)))
    assert fails["failure_rate_low"] == pytest.approx(1 - works["failure_rate_high"])
    assert fails["failure_rate_high"] == pytest.approx(1 - works["failure_rate_low"])


def test_with_few_failing_sessions_a_session_counts_as_few_calls(tmp_path):
    # Hits times misses: 12*48/60 + 8*12/20 = 14.4, so the correlation is 1 - 14.4/(97*0.16) =
    # 0.0722; DEFF 1 + 43*0.0722 = 4.1031, and 100/3 if a session counts as one call.
    # Two sessions fail: 4.1031^(2/3.5) * (100/3)^(1.5/3.5). Shown is u = 0, 4, -4, which is
    # 3/2*32/100/0.16 = 3.
    row = one(build(tmp_path / "s", sessions([(12, 60), (8, 20), (0, 20)])))
    effect = 4.1031 ** (2 / 3.5) * (100 / 3) ** (1.5 / 3.5)
    assert row["confidence_n_eff"] == pytest.approx(100 / effect, rel=1e-4)
    t = 1.959964 + (2 / 3.5) * (1 - 1 / effect) * (scipy.stats.t.ppf(0.975, 2) - 1.959964)
    assert row["failure_rate_high"] == pytest.approx(wilson(0.2, 100 / effect, t)[1], rel=1e-4)


def test_the_interval_is_wider_if_only_long_sessions_fail(tmp_path):
    # Hits times misses: 6*15*15/30 = 45 is a correlation of 0.21 and a DEFF of 4.6 with the weight
    # of six sessions. Shown is u = 15 - 30*p (6 times), -3*p (100 times) with p = 90/480.
    row = one(build(tmp_path / "s", sessions([(15, 30)] * 6 + [(0, 3)] * 100)))
    p = 90 / 480
    shown = 106 / 105 * (6 * (15 - 30 * p) ** 2 + 100 * (3 * p) ** 2) / 480 / (p * (1 - p))
    assert shown == pytest.approx(7.7, abs=0.05)
    assert row["confidence_n_eff"] == pytest.approx(480 / shown)


def test_without_a_failure_every_session_counts_as_one_call(tmp_path):
    row = one(build(tmp_path / "s", sessions([(0, 5)] * 12)))
    assert (row["failure_rate"], row["confidence_n_eff"]) == (0, 12)
    assert (row["failure_rate_low"], row["failure_rate_high"]) == pytest.approx(
        (0, 0.242494), abs=1e-5
    )
    assert row["failure_rate_insufficient_data"] is False


def test_one_session_is_one_observation_however_many_calls(tmp_path):
    row = one(build(tmp_path / "s", sessions([(300, 1000)])))
    assert (
        row["failure_rate"],
        row["confidence_n_eff"],
        row["failure_rate_insufficient_data"],
    ) == (0.3, 1, True)


HIDDEN = {"outcome": "hidden_error", "verdict": "tool_failure"}


def test_each_rate_counts_the_calls_that_its_question_is_about(tmp_path):
    kinds = [FAILED, HIDDEN, REFUSED, NO_NETWORK, UNCLEAR, OK, OK]
    extra = [{"outcome": "cancelled"}, {"outcome": "input_required"}, {"outcome": "task"}]
    row = one(build(tmp_path / "s", [call(i, **kind) for i, kind in enumerate(kinds + extra)]))
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


@pytest.mark.parametrize("kind", [NO_NETWORK, REFUSED, UNCLEAR, {"outcome": "cancelled"}])
def test_a_tool_that_could_not_show_itself_has_no_confidence(tmp_path, kind):
    row = one(build(tmp_path / "s", [call(n, **kind) for n in range(40)]))
    for end in ("", "_low", "_high", "_shrunk"):
        assert row[f"confidence{end}"] is None
    assert row["confidence_insufficient_data"] is True
    assert (row["ok"], row["failure_rate"]) == (0, 0)
    if kind["outcome"] == "cancelled":
        assert row["success_rate"] is None
    else:
        assert (row["success_rate"], row["success_rate_insufficient_data"]) == (0, False)


def test_ambiguous_failures_widen_the_interval_of_confidence_to_the_low_side(tmp_path):
    sure = one(build(tmp_path / "a", sessions([(1, 1)] * 10 + [(0, 1)] * 60)))
    worst = one(build(tmp_path / "b", sessions([(1, 1)] * 30 + [(0, 1)] * 60)))
    rows = sessions([(1, 1)] * 10 + [(0, 1)] * 60) + [call(100 + n, **UNCLEAR) for n in range(20)]
    unclear = one(build(tmp_path / "c", rows))
    assert unclear["confidence"] == pytest.approx(sure["confidence"])
    assert unclear["confidence_high"] == pytest.approx(sure["confidence_high"])
    assert unclear["confidence_low"] == pytest.approx(worst["confidence_low"])
    assert unclear["confidence_low"] < sure["confidence_low"] - 10
    assert unclear["ambiguous_rate"] == pytest.approx(20 / 90)


def test_ambiguous_failures_alone_can_leave_too_little_data_for_a_confidence(tmp_path):
    clear = sessions([(0, 1)] * 40)
    unclear = [call(100 + n, **UNCLEAR) for n in range(40)]
    assert one(build(tmp_path / "a", clear))["confidence_insufficient_data"] is False
    row = one(build(tmp_path / "b", clear + unclear))
    assert row["confidence_insufficient_data"] is True
    assert row["success_rate_insufficient_data"] is False


def test_tools_that_cost_callers_most_come_first_and_refusals_count_a_quarter(tmp_path):
    rows = []
    for name, kind, n in (
        ("refuses 11", REFUSED, 11),
        ("unclear 5", UNCLEAR, 5),
        ("down 4", NO_NETWORK, 4),
        ("fails 3", FAILED, 3),
        ("refuses 9", REFUSED, 9),
        ("works", OK, 50),
    ):
        rows += [call(i, name, **kind) for i in range(n)]
    assert tools(build(tmp_path / "s", rows)).get_column("tool").to_list() == [
        *("unclear 5", "down 4", "fails 3", "refuses 11", "refuses 9", "works")
    ]


def test_calls_without_a_tool_or_server_break_nothing(tmp_path):
    rows = [
        call(1, None),
        call(1, server=None),
        call(2, server=None, **FAILED),
        call(1, method="ping"),
    ]
    store = build(tmp_path / "s", rows)
    assert tools(store).select("server", "tool", "calls", "failure_rate").rows() == [
        (None, "t", 2, 0.5)
    ]
    (server,) = store.ask("server_scores").pl().to_dicts()
    assert (server["server"], server["calls"], server["confidence_tool_mean"]) == (None, 2, 50)


def test_shrinkage_moves_small_tools_towards_the_mean(tmp_path):
    rows = []
    for number in range(8):  # eight tools that fail in one of ten
        rows += sessions([(1, 1)] * 3 + [(0, 1)] * 27, f"steady{number}")
    rows += sessions([(1, 1)] + [(0, 1)] * 2, "small")
    found = tools(build(tmp_path / "s", rows)).rows_by_key("tool", named=True, unique=True)
    small, steady = found["small"], found["steady0"]
    assert small["confidence"] == pytest.approx(100 * 2 / 3)
    assert 85 < small["confidence_shrunk"] < 90
    assert steady["confidence_shrunk"] == pytest.approx(90, abs=1)
    assert small["confidence_shrunk_low"] < 90 < small["confidence_shrunk_high"]


def test_shrinkage_follows_kleinmans_moments(tmp_path):
    # Eight tools fail 1 to 8 times in 30 sessions, each worth 29 calls: Kleinman's moments.
    rates = [number / 30 for number in range(1, 9)]
    rows = [
        row
        for number in range(1, 9)
        for row in sessions([(1, 1)] * number + [(0, 1)] * (30 - number), f"t{number}")
    ]
    p = sum(rates) / 8
    spread = 29 * sum((rate - p) ** 2 for rate in rates)
    rho = (spread / (p * (1 - p)) - 7) / (8 * 29 - 29 - 7)
    typical, weight = (8 * 29 * p + 0.5) / (8 * 29 + 1), 1 / rho - 1
    expected = [100 - 100 * (29 * rate + weight * typical) / (29 + weight) for rate in rates]
    found = tools(build(tmp_path / "s", rows)).sort("tool").get_column("confidence_shrunk")
    assert found.to_list() == pytest.approx(expected)


def test_ranks_are_by_the_bounds_of_the_shrunk_rate(tmp_path):
    rows = sessions([(1, 1)] * 20 + [(0, 1)] * 20, "bad")
    rows += sessions([(1, 1)], "unlucky")
    rows += sessions([(0, 1)] * 40, "good")
    rows += sessions([(0, 1)], "lucky")
    found = tools(build(tmp_path / "s", rows))
    assert found.sort("rank_worst").get_column("tool")[0] == "bad"
    assert found.sort("rank_best").get_column("tool")[0] == "good"


def test_the_correction_for_errors_of_the_verdict_is_rogan_and_gladens(tmp_path):
    rows = sessions([(1, 2)] * 30) + [call(number, **REFUSED) for number in range(30)]
    store = build(tmp_path / "s", rows)
    row = one(store)
    right, failures, kept, others = store.sql(
        "SELECT called_failures, labelled_failures, called_others, labelled_others "
        "FROM _verdict_accuracy"
    ).fetchall()[0]
    sens, spec = (right + 1) / (failures + 2), (kept + 1) / (others + 2)
    expected = (30 / 90 - (1 - spec) * 60 / 90) / (sens + spec - 1)
    assert row["failure_rate_corrected"] == pytest.approx(expected)
    assert row["failure_rate_corrected_low"] < expected < row["failure_rate_corrected_high"]
    width = row["failure_rate_high"] - row["failure_rate_low"]
    assert row["failure_rate_corrected_high"] - row["failure_rate_corrected_low"] > width


def test_a_server_has_the_mean_of_its_calls_and_of_its_tools(tmp_path):
    rows = sessions([(1, 1)] * 10, "rare") + sessions([(0, 9)] * 10, "busy")
    store = build(tmp_path / "s", rows)
    (row,) = store.ask("server_scores").pl().to_dicts()
    assert row["confidence"] == pytest.approx(90)
    assert row["confidence_tool_mean"] == pytest.approx(50)
    assert row["confidence_tool_mean_low"] < 50 < row["confidence_tool_mean_high"]


UNKNOWN_NAME = REFUSED | {"error_text": "Unknown tool: imagined"}


def named(store):
    return tools(store).get_column("tool").sort().to_list()


def test_a_name_that_no_listing_has_is_not_a_tool(tmp_path):
    rows = sessions([(0, 1)] * 10, "real")
    rows += [call(n, "imagined", client=f"c{n % 2}", **UNKNOWN_NAME) for n in range(10)]
    store = build(tmp_path / "s", rows, [definition("real"), definition("imagine")])
    assert named(store) == ["real"]
    (server,) = store.ask("server_scores").pl().to_dicts()
    assert (server["confidence_tool_mean"], server["tools"], server["tools_listed"]) == (100, 1, 2)
    assert (server["calls"], server["unlisted_calls"], server["business"]) == (20, 10, 10)
    (name,) = store.ask("unlisted_names").pl().to_dicts()
    assert (name["server"], name["name"], name["calls"], name["sessions"]) == (
        ("s", "imagined", 10, 10)
    )
    assert (name["clients"], name["outcome"], name["verdict"]) == (
        (["c0", "c1"], "tool_error", "business")
    )
    assert (name["example"], name["similar_tool"]) == ("Unknown tool: imagined", "imagine")


@pytest.mark.parametrize("outcome", ["ok", "task", "input_required"])
def test_a_name_that_worked_once_is_a_tool_whatever_the_listings_say(tmp_path, outcome):
    rows = [call(n, "gated", **REFUSED) for n in range(9)] + [call(9, "gated", outcome=outcome)]
    store = build(tmp_path / "s", rows, [definition("real")])
    assert named(store) == ["gated"]
    assert store.ask("unlisted_names").fetchall() == []
    later = BEGAN + timedelta(days=1)
    rows[-1] |= {"requested_at": later}
    store = build(tmp_path / "later", rows, [definition("real")])
    assert tools_until(store, later) == ["gated"], "a filter does not change what is a tool"


def tools_until(store, moment):
    return store.ask("tool_scores", until=moment).pl().get_column("tool").to_list()


@pytest.mark.parametrize(
    "listing",
    [
        [],
        [definition("real", server="other")],
        [definition("real", complete=False)],
        [definition("real"), definition("maybe", first_seen=BEGAN + timedelta(days=9))],
    ],
    ids=["no listing", "a listing of another server", "the first page", "a later listing"],
)
def test_a_name_stays_a_tool_without_a_whole_listing_that_lacks_it(tmp_path, listing):
    store = build(tmp_path / "s", [call(n, "maybe", **REFUSED) for n in range(9)], listing)
    assert named(store) == ["maybe"]


def test_a_listing_of_the_same_server_under_another_label_counts(tmp_path):
    rows = [call(n, "maybe", **REFUSED) for n in range(9)]
    listings = [definition("real"), definition("maybe", server="http", server_name="git")]
    store = build(tmp_path / "s", rows, listings)
    assert named(store) == []
    names = [{"recording": "0", "server": "s", "server_name": "git"}]
    store = build(tmp_path / "named", rows, listings, recordings=names)
    assert named(store) == ["maybe"]


@pytest.mark.parametrize(
    ("there", "calls", "known"),
    [
        (29, 40, ""),
        (30, 40, "p50"),
        (60, 3, "p50"),
        (60, 4, "p50 p95"),
        (299, 4, "p50 p95"),
        (300, 4, "p50 p95 p99"),
    ],
)
def test_latency_quantiles_have_intervals_where_enough_calls_lie_beyond(
    tmp_path, there, calls, known
):
    rows = [
        call(s, latency_ms=10.0 + (s * 7919 + i * 104729) % 997)
        for s in range(there)
        for i in range(calls)
    ]
    row = one(build(tmp_path / "s", rows))
    for name in ("p50", "p95", "p99"):
        value, low, high = (row[f"latency_{name}_ms{end}"] for end in ("", "_low", "_high"))
        assert (low is not None) == (high is not None) == (name in known.split())
        if low is not None:
            assert low < value < high


def test_a_quantile_is_interpolated_as_numpy_does(tmp_path):
    times = [float(n * n) for n in range(1, 12)]
    row = one(build(tmp_path / "s", [call(n, latency_ms=time) for n, time in enumerate(times)]))
    found = [row[f"latency_{name}_ms"] for name in ("p50", "p95", "p99")]
    assert found == pytest.approx(np.quantile(times, (0.5, 0.95, 0.99)).tolist())


def test_the_interval_of_a_quantile_is_the_same_every_time(tmp_path):
    rows = [
        call(s, latency_ms=float(1 + (s * 13 + i * i) % 97)) for s in range(40) for i in range(6)
    ]
    store = build(tmp_path / "s", rows)
    first, second = (one(store)["latency_p95_ms_low"] for _ in range(2))
    assert first == second


def test_retries_are_counted_with_what_they_cost(tmp_path):
    first = call(1, **FAILED, call_id="a", attempt_of="a")
    again = call(
        1,
        attempt_of="a",
        attempt_why="retry",
        latency_ms=500.0,
        response_tokens=30,
        request_bytes=40,
    )
    hopeless = [
        call(2, **FAILED, call_id="b", attempt_of="b"),
        call(2, **FAILED, attempt_of="b", attempt_why="retry", latency_ms=250.0),
        call(2, **FAILED, attempt_of="b", attempt_why="retry", latency_ms=250.0),
    ]
    row = one(build(tmp_path / "s", [first, again, *hopeless]))
    assert (row["retries"], row["retried_calls"], row["recovered_calls"]) == (3, 2, 1)
    assert (row["retry_seconds"], row["retry_tokens"]) == (1.0, 40)


def test_t_quantiles_and_beta_quantiles_are_scipys(tmp_path):
    store = build(tmp_path / "s", [call(1)])
    got = store.sql(
        "SELECT t_quantile(0.975, 5), t_quantile(0.975, 'infinity'), beta_quantile(0.025, 3, 7), "
        "t_test(-2.5, 9), t_quantile(0.975, NULL), t_quantile(0.975, 0)"
    ).fetchall()[0]
    assert got[:4] == pytest.approx(
        (
            scipy.stats.t.ppf(0.975, 5),
            scipy.stats.norm.ppf(0.975),
            scipy.stats.beta.ppf(0.025, 3, 7),
            2 * scipy.stats.t.sf(2.5, 9),
        )
    )
    assert got[4:] == (None, None)


def test_an_empty_store_has_scores_without_rows(tmp_path):
    store = build(tmp_path / "s", [])
    assert tools(store).height == store.ask("server_scores").pl().height == 0
    assert store.ask("timeline").pl().height == store.ask("change_points").pl().height == 0


def test_every_score_is_documented(tmp_path):
    page = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "statistics.md"
    words = set(re.findall(r"`(\w+)`", page.read_text(encoding="utf-8")))
    store = build(tmp_path / "s", [])
    for question in ("tool_scores", "server_scores"):
        names = {
            re.sub(r"_(low|high|insufficient_data)$", "", name)
            for name in store.ask(question).columns
        }
        assert names - words - {"server", "tool"} == set()
