"""A comparison finds the known differences of two archives."""

import json
import random
from collections import Counter

import pytest

from mcptally.analytics import compare
from mcptally.analytics.store import open_store
from mcptally.pipeline.run import score
from tests import corpus
from tests.analytics.built_stores import (
    BEGAN,
    FAILED,
    NO_NETWORK,
    OK,
    Servers,
    build,
    call,
    definition,
    sessions,
)
from tests.transcripts import lines_of, text, write

pytestmark = pytest.mark.slow


def rows(seed, tool="t", *, p=0.1, latency=10.0, count=40, size=6, **fields):
    """Sessions of calls that fail at a rate; each session has its own mean latency."""
    dice = random.Random(f"{seed}{tool}")
    return [
        call(
            f"{seed}{number}",
            tool,
            latency_ms=latency * pace * dice.lognormvariate(0, 0.5),
            response_bytes=100,
            **(FAILED if dice.random() < p else OK),
            **fields,
        )
        for number in range(count)
        for pace in [dice.lognormvariate(0, 0.3)]
        for _ in range(size)
    ]


def compared(tmp_path, base, new):
    return build(tmp_path / "base", base).compare(build(tmp_path / "new", new))


LISTED = [definition("a"), definition("b")]
WEATHER = {
    "description": "Reads the weather of a town, for today or for a day of the coming week.",
    "input_schema": '{"properties":{"town":{"type":"string"}},"type":"object"}',
}
CASES = {
    "sick and well": (
        rows(1, "sick", p=0.1) + rows(1, "well", p=0.1),
        rows(2, "sick", p=0.4) + rows(2, "well", p=0.1),
    ),
    "outage": (
        rows(1, p=0.2),
        [row | (NO_NETWORK if n % 2 else {}) for n, row in enumerate(rows(2, p=0.2))],
    ),
    "broken": (rows(1, p=0.1), rows(2, p=0.6)),
    "repaired": (rows(1, p=0.4), rows(2, p=0.1)),
    "slow and steady": (
        rows(1, "slow") + rows(1, "steady"),
        rows(2, "slow", latency=20.0) + rows(2, "steady"),
    ),
    "few sessions": (sessions([(0, 500)] * 4), sessions([(400, 500)] * 4)),
    "another mix": (
        rows(1, "firm", p=0.0, size=9) + rows(1, "frail", p=0.5, size=1),
        rows(2, "firm", p=0.0, size=1) + rows(2, "frail", p=0.5, size=9),
    ),
    "all worse": [
        [row for tool in "abc" for row in rows(n, tool, p=p)] for n, p in ((1, 0.05), (2, 0.3))
    ],
    "renamed": (
        [*rows(1, "get_weather", p=0.05), call(1, "stays"), call(1, "goes")],
        [*rows(2, "weather", p=0.5), call(2, "stays")],
        [definition("get_weather", **WEATHER), definition("stays"), definition("goes")],
        [
            definition("weather", **WEATHER),
            definition(
                "stays", description="Another text.", input_schema='{"type":"object","x":1}'
            ),
            definition("comes", input_schema='{"type":"object","required":["a"]}'),
        ],
    ),
    "listed": ([call(1, "a"), call(1, "b")], [call(2, "a")], LISTED, LISTED),
    "unlisted": ([call(1, "a"), call(1, "b")], [call(2, "a")]),
    "typo": (
        [call(1, "stays"), call(1, "goes"), call(1, "typo", **FAILED), call(1, None, **FAILED)],
        [call(2, "stays"), *(call(2, name, **FAILED) for name in ("goes", "typo", None))],
        [definition("stays"), definition("goes")],
        [definition("stays")],
    ),
    # Ten weights of 0.1 do not add up to 1 in floating point.
    "flawless": [
        [row for number in range(10) for row in rows(side, f"t{number}", p=0, count=6, size=2)]
        for side in (1, 2)
    ],
    "later": (rows(1), [row | {"requested_at": BEGAN.replace(year=2027)} for row in rows(1)]),
    "without a label": (rows(1, p=0.05, server=None), rows(2, p=0.5, server=None)),
}
"""Calls to a server before and after a change, and the tools that it listed."""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Rows about the server of a case, in a comparison of all cases."""
    folder = tmp_path_factory.mktemp("compared")
    before, after, labels = Servers(), Servers(), {}
    for name, (base, new, *tools) in CASES.items():
        labels[name] = before.add(base, *tools[:1])
        after.add(new, *tools[1:])
    labels["without a label"] = None
    compared = before.build(folder / "base").store.compare(after.build(folder / "new").store)
    frames = {name: getattr(compared, name).pl().to_dicts() for name in ("metrics", "tools")}

    def rows_of(case, level="tool", table="metrics", **fields):
        wanted = {"server": labels[case], "level": level} | fields
        return [row for row in frames[table] if wanted.items() <= row.items()]

    return rows_of


def by_metric(rows):
    return {(row["tool"], row["metric"]): row["verdict"] for row in rows}


def verdicts(found):
    return by_metric(row for row in found.metrics.pl().to_dicts() if row["level"] == "tool")


def changes(rows):
    return {row["tool"]: row["change"] for row in rows if row["level"] == "tool"}


def test_a_tool_that_fails_more_is_worse_and_the_others_are_not(found):
    metrics = by_metric(found("sick and well"))
    assert metrics["sick", "confidence"] == "worse"
    assert metrics["well", "confidence"] != "worse"
    words = {row["tool"]: row["words"] for row in found("sick and well", table="tools")}
    assert words["sick"].startswith("lower confidence: ")
    assert "q < 0.001" in words["sick"]
    assert "cannot rule out confidence" in words["well"]


def test_an_outage_is_worse_for_callers_and_not_for_the_tool(found):
    metrics = by_metric(found("outage"))
    assert metrics["t", "success_rate"] == metrics["t", "infrastructure_rate"] == "worse"
    assert metrics["t", "confidence"] not in ("worse", "better")
    (row,) = found("outage", metric="success_rate")
    assert row["change_low"] <= row["change"] <= row["change_high"] < 0
    assert row["change"] == pytest.approx(row["new"] - row["base"])


def test_confidence_is_compared_in_its_own_unit(found):
    (row,) = found("broken", metric="confidence")
    assert (row["base"] > 80, row["new"] < 50, row["change_high"] < -20) == (True, True, True)
    (tool,) = found("broken", table="tools")
    assert "fails more" not in tool["words"], "it would repeat what the confidence says"


def test_a_tool_that_fails_less_is_better(found):
    assert by_metric(found("repaired"))["t", "confidence"] == "better"


def test_a_tool_twice_as_slow_is_reported_with_the_ratio(found):
    (row,) = found("slow and steady", tool="slow", metric="latency_ms")
    assert row["verdict"] == "worse"
    assert row["change_low"] < 2 < row["change_high"]
    assert changes(found("slow and steady", table="tools"))["steady"] in ("unclear", "unchanged")


def test_an_archive_against_itself_has_no_change(tmp_path):
    same = rows(1, "a", p=0.2) + rows(1, "b", p=0.0)
    found = compared(tmp_path, same, same)
    assert {v for v in verdicts(found).values() if v in ("worse", "better")} == set()
    assert found.metrics.filter("q_value < 1").pl().height == 0


def test_a_change_too_small_to_matter_is_no_change(tmp_path):
    base = build(tmp_path / "base", rows(1, p=0.3, count=400))
    new = build(tmp_path / "new", rows(2, p=0.4, count=400))
    assert verdicts(base.compare(new))["t", "confidence"] == "worse"
    assert verdicts(base.compare(new, min_difference=0.2))["t", "confidence"] == "unchanged"


def test_few_sessions_are_too_little_data_even_with_many_calls(found):
    [tool] = found("few sessions", table="tools")
    assert tool["change"] == "too_little_data"
    assert "2,000 and 2,000 calls in 4 and 4 sessions" in tool["words"].replace("2000", "2,000")


def test_a_different_mix_of_the_same_tools_is_no_regression(found):
    (server,) = found("another mix", "server", metric="confidence")
    assert abs(server["change"]) < 6
    assert server["verdict"] not in ("worse", "better")


def test_a_server_whose_tools_all_fail_more_is_worse(found):
    (server,) = found("all worse", "server", "tools")
    assert (server["change"], server["worse"]) == (
        ("worse", ["confidence", "failure_rate", "success_rate"])
    )


def test_new_vanished_and_renamed_tools_are_recognised(found):
    by_tool = {row["tool"]: row for row in found("renamed", table="tools")}
    assert {name: row["change"] for name, row in by_tool.items()} == {
        "weather": "worse",
        "stays": "definition_changed",
        "goes": "vanished",
        "comes": "new",
    }
    assert by_tool["weather"]["base_tool"] == "get_weather"
    assert "was called get_weather" in by_tool["weather"]["words"]
    assert by_tool["stays"]["definition_changed"] == ["input_schema", "description"]


def test_a_tool_that_is_listed_but_not_called_has_not_vanished(found):
    told = [changes(found(case, table="tools"))["b"] for case in ("listed", "unlisted")]
    assert told == ["too_little_data", "only_in_base"]


def test_names_that_are_no_tools_are_not_compared(found):
    told = changes(found("typo", table="tools"))
    assert told == {"stays": "too_little_data", "goes": "vanished"}


def test_a_server_without_a_failure_is_not_certain_to_be_unchanged(found):
    [row] = found("flawless", "server", metric="confidence")
    assert (row["base"], row["new"], row["verdict"]) == (100, 100, "unclear")
    assert row["change_low"] < -1 < 1 < row["change_high"]


def test_servers_without_a_label_are_compared_too(found):
    assert changes(found("without a label", table="tools")) == {"t": "worse"}


def test_q_values_grow_with_the_number_of_compared_tools(tmp_path):
    alone = compared(tmp_path / "1", rows(1, p=0.1), rows(2, p=0.3))
    others = [f"o{number}" for number in range(20)]
    many = compared(
        tmp_path / "20",
        rows(1, p=0.1) + [row for tool in others for row in rows(1, tool, p=0.2)],
        rows(2, p=0.3) + [row for tool in others for row in rows(1, tool, p=0.2)],
    )
    q = [
        one.metrics.filter("tool = 't' AND metric = 'confidence'").pl().to_dicts()[0]
        for one in (alone, many)
    ]
    assert q[0]["p_value"] == pytest.approx(q[1]["p_value"])
    assert q[1]["q_value"] == pytest.approx(21 * q[0]["q_value"])


def test_the_weights_of_each_family_sum_to_one():
    families = {}
    for _, family, weight in compare.METRICS:
        families[family] = families.get(family, 0) + weight
    assert families == {name: pytest.approx(1) for name in families}


def changed(lines):
    """Return a transcript's lines after 30 % of the calls to `touch` crash, `job` takes twice as
    long, and `git_status` is called `git_state`."""
    dice, late, asked = random.Random(7), Counter(), {}
    crash = text(0, "TypeError: Cannot read properties of undefined", isError=True)
    for line in lines:
        event = json.loads(line.replace(b'"git_status"', b'"git_state"'))
        recording = event["recording"]
        match event.get("msg"):
            case {"method": "tools/call", "id": id_, "params": {"name": tool}}:
                asked[recording, json.dumps(id_)] = tool, event["ts_ns"]
            case {"result": _, "id": id_} as msg:
                tool, at = asked.pop((recording, json.dumps(id_)), (None, 0))
                if tool == "touch" and dice.random() < 0.3:
                    msg["result"] = crash["result"]
                if tool == "job":  # a slower call delays itself and all later events
                    late[recording] += event["ts_ns"] - at
        yield event | {"ts_ns": event["ts_ns"] + late[recording]}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Stores of real traffic before and after the change."""
    folder = tmp_path_factory.mktemp("real")
    for name in ("base", "new"):
        (folder / name).mkdir()
    for path in corpus.recordings():
        if path.name.removesuffix(".jsonl.zst") in {"m2", "shell", "git", "memory", "everything"}:
            write(folder / "base" / path.name, lines_of(path))
            write(folder / "new" / path.name, changed(lines_of(path)))
    for name in ("base", "new"):
        score([folder / name], out=folder / f"{name}-store")
    return [open_store(folder / f"{name}-store") for name in ("base", "new")]


def test_only_the_changes_made_to_real_traffic_are_reported(real):
    found = real[0].compare(real[1])
    told = found.tools.filter("change IN ('worse', 'better', 'vanished', 'new', 'renamed')")
    assert {(r["server"], r["tool"], r["change"]) for r in told.pl().to_dicts() if r["tool"]} == {
        ("m2", "touch", "worse"),
        ("m2", "job", "worse"),
        ("git", "git_state", "renamed"),
    }
    worse = {r["tool"]: r["worse"] for r in told.pl().to_dicts()}
    assert "confidence" in worse["touch"]
    assert "latency_ms" in worse["job"]


def test_real_traffic_compared_with_itself_has_no_change(real):
    quiet = {"unclear", "unchanged", "too_little_data"}
    assert set(real[0].compare(real[0]).tools.pl().get_column("change")) <= quiet


def test_the_time_of_calls_does_not_affect_a_comparison(found):
    assert by_metric(found("later"))["t", "confidence"] != "worse"
