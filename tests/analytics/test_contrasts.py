"""The question `contrasts`: what failing calls have in common."""

import json
import random
from collections import Counter
from datetime import timedelta

import pytest

from mcptally.analytics.contrasts import by_group, of_problem, of_tools_with
from tests.analytics.built_stores import (
    BEGAN,
    FAILED,
    OK,
    REFUSED,
    Servers,
    build,
    call,
    definition,
)

SERVERS = Servers()


def given_in(session, given, *, second=0, **fields):
    """Return a call with these arguments; each session has its own minute."""
    at = BEGAN + timedelta(minutes=session, seconds=second)
    return call(session, arguments=json.dumps(given), requested_at=at, **fields)


def calls(arguments, fails, *, sessions=10, kind=REFUSED, **fields):
    """Return one call per session and arguments; it fails if `fails` is true."""
    return [
        given_in(
            session,
            given,
            **((kind | {"template": "went wrong"}) if fails(given, session) else OK),
            **{name: value(session) for name, value in fields.items()},
        )
        for session in range(sessions)
        for given in arguments
    ]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return SERVERS.build(tmp_path_factory.mktemp("contrasts") / "s")


def case(arguments, fails, *, tools=(), **options):
    return SERVERS.add(calls(arguments, fails, **options), tools)


def fact(row):
    return tuple(row[name] for name in ("aspect", "path", "test", "value", "absent"))


ZONES = [{"zone": zone, "n": 9} for zone in ("UTC", "", "Asia/Tokyo", "Mars")]
ITEMS = [{"items": items} for items in ([], ["a"], ["a", "b"], [{"name": "x"}])]
NUMBERS = [{"n": n} for n in (-5, -1, 2, 7, 2000)]
PATHS = [{"path": path} for path in ("/etc/x", "/var/y", "notes.txt", "a/../b", "z")]
NAMES = [{"q": q} for q in ("a", "b", 1, 2, None)]
NESTED = [{"data": {"price": price, "name": "x"}} for price in (-1, 5, 6)]
LISTS = [{"tags": ["a"] * n} for n in (0, 1, 2, 3, 12)]
TEXTS = [{"text": text} for text in ("short", "b", "two\nlines", "y" * 140, "z" * 150)]
LETTERS = [{"text": text} for text in ("a", "b c", "d", "é", "ö", "ünïcode")]
FOUND = {
    ("argument", "zone", "empty", "yes", False): case(ZONES, lambda a, _: not a["zone"]),
    ("argument", "zone", "equals", "Mars", False): case(ZONES, lambda a, _: a["zone"] == "Mars"),
    ("argument", "zone", "given", "yes", True): case(
        [*ZONES, {"n": 9}], lambda a, _: "zone" not in a
    ),
    ("argument", "items", "empty", "yes", False): case(ITEMS, lambda a, _: not a["items"]),
    ("argument", "n", "sign", "negative", False): case(NUMBERS, lambda a, _: a["n"] < 0),
    ("argument", "n", "at_least", "1000", False): case(
        [*NUMBERS, {"n": 3000}], lambda a, _: a["n"] >= 1000
    ),
    ("argument", "path", "form", "path", False): case(PATHS, lambda a, _: a["path"][0] == "/"),
    ("argument", "path", "form", "parent_path", False): case(
        [*PATHS, {"path": "../c"}], lambda a, _: ".." in a["path"]
    ),
    ("argument", "path", "ends", "/a.txt", False): case(
        [{"path": f"{folder}/{name}"} for folder in "xyz" for name in ("a.txt", "b.txt", "c.md")],
        lambda a, _: a["path"].endswith("a.txt"),
    ),
    ("argument", "path", "ends", ".md", False): case(
        [{"path": f"{name}.{kind}"} for name in ("x/a", "b", "c") for kind in ("md", "txt")],
        lambda a, _: a["path"].endswith(".md"),
    ),
    ("argument", "q", "type", "text", True): case(NAMES, lambda a, _: not isinstance(a["q"], str)),
    ("argument", "data.price", "equals", "-1", False): case(
        NESTED, lambda a, _: a["data"]["price"] < 0
    ),
    ("argument", "tags", "items", "11", False): case(LISTS, lambda a, _: len(a["tags"]) > 10),
    ("argument", "text", "longer", "100", False): case(TEXTS, lambda a, _: len(a["text"]) > 100),
    ("argument", "text", "form", "non_ascii", False): case(
        LETTERS, lambda a, _: not a["text"].isascii()
    ),
    ("client", None, "equals", "old", False): case(
        ZONES[:2], lambda _, s: s % 3 == 0, sessions=24, client=lambda s: "new" if s % 3 else "old"
    ),
    ("time", None, "since", "2026-03-02 00:19:00", False): case(
        ZONES[:2], lambda _, s: s >= 19, sessions=40
    ),
}


@pytest.mark.parametrize(("expected", "server"), FOUND.items())
def test_what_separates_failing_calls_is_named(expected, server, answers):
    [row] = answers.of(server, "contrasts")
    assert fact(row) == expected
    assert row["failed_with"] == row["calls_with"] == row["calls"]
    assert row["failed_without"] == 0
    assert row["share_with_low"] > row["share_without_high"]
    assert not row["sampled"]


BOTH = case(
    [{"a": a, "b": b} for a in (1, 2, 3) for b in ("x", "y", "z")],
    lambda a, _: a["a"] == 1 and a["b"] == "x",
    sessions=24,
)
NOTHING = case(ZONES, lambda a, s: (len(a["zone"]) + s) % 5 == 0)
FEW = case(ZONES, lambda _, s: s == 0)
OFFERED = case(
    ZONES,
    lambda a, _: a["zone"] == "Mars",
    definition=lambda _: "d",
    tools=[
        definition(
            "t",
            definition="d",
            input_schema='{"properties": {"zone": {"enum": ["UTC", "", "Mars", "Asia/Tokyo"]}}}',
        )
    ],
)
INVALID = case(
    [{"pages": [[1]]}, {"pages": [[1, "a"]]}, {"pages": []}],
    lambda _, s: s % 2 == 0,
    sessions=20,
    input_schema_state=lambda s: "valid" if s % 2 else "invalid",
    input_schema_path=lambda s: None if s % 2 else f"/pages/{s % 4}/{s}",
)
TIMED_OUT = {"outcome": "timeout", "verdict": "infrastructure", "template": "too late"}
MIXED_CALLS = [
    given_in(
        session,
        given,
        **(
            REFUSED | {"template": "no such zone"}
            if given["zone"] == "Mars"
            else TIMED_OUT
            if session % 4 == 0
            else FAILED | {"template": "it crashed"}
            if (session + given["n"]) % 3 == 0
            else {"outcome": "cancelled"}
            if session == 1
            else OK
        ),
    )
    for session in range(24)
    for given in ZONES
]
MIXED = SERVERS.add(MIXED_CALLS)
FLAKY = case([{"n": 1}], lambda _, s: s % 3 == 0, sessions=30)
MASKED = case(
    [{"token": token} for token in ("[redacted:token]", "b", "c")],
    lambda a, _: a["token"].startswith("["),
)


def test_two_facts_that_only_together_make_calls_fail_are_named_together(answers):
    [row] = answers.of(BOTH, "contrasts")
    found = {(row["path"], row["value"]), (row["and_path"], row["and_value"])}
    assert found == {("a", "1"), ("b", "x")}
    assert (row["failed_with"], row["calls_with"]) == (24, 24)


def test_failures_that_nothing_separates_have_a_row_without_a_fact(answers):
    [row] = answers.of(NOTHING, "contrasts")
    assert fact(row) == (None,) * 5
    assert row["effect"] is row["p_value"] is None


def test_few_failures_are_not_compared(answers):
    assert answers.of(FEW, "contrasts") == []


def test_a_value_that_the_schema_offers_is_marked(answers):
    [row] = answers.of(OFFERED, "contrasts")
    assert (row["value"], row["offered"]) == ("Mars", True)
    [row] = answers.of(FOUND[("argument", "zone", "equals", "Mars", False)], "contrasts")
    assert not row["offered"]


def test_a_violated_schema_is_named_by_the_path_of_the_argument(answers):
    [row] = answers.of(INVALID, "contrasts")
    assert (row["aspect"], row["path"], row["test"]) == ("schema", "pages[][]", "at")


def test_the_counts_are_of_all_calls_to_the_tool(answers):
    [row] = [row for row in answers.of(MIXED, "contrasts") if row["template"] == "no such zone"]
    assert fact(row) == ("argument", "zone", "equals", "Mars", False)
    ended = [one for one in MIXED_CALLS if one["outcome"] != "cancelled"]
    for side, holds in (("with", True), ("without", False)):
        outcomes = Counter(
            one.get("template")
            for one in ended
            if (json.loads(one["arguments"])["zone"] == "Mars") is holds
        )
        assert row[f"calls_{side}"] == outcomes.total()
        assert row[f"failed_{side}"] == outcomes["no such zone"]
    assert outcomes["too late"]
    assert outcomes["it crashed"]


def test_a_fact_shared_with_calls_that_fail_otherwise_is_not_reported(tmp_path):
    """Calls with `Mars` never work, but most of them fail with another error."""
    lost, late = (REFUSED | {"template": text} for text in ("no such sheet", "too late"))
    rows = [
        given_in(session, {"zone": zone, "n": (7 * session + 11 * number) % 50}, **outcome)
        for session in range(12)
        for number, (zone, outcome) in enumerate(
            [*[("Mars", late)] * 8, *[("UTC", OK)] * 3, ("Mars", lost)]
            + ([("UTC", lost)] if session < 4 else [])
        )
    ]
    found = build(tmp_path / "s", rows).ask("contrasts").pl()
    late, lost = found.sort("calls", descending=True).to_dicts()
    assert fact(late) == ("argument", "zone", "equals", "Mars", False)
    assert (late["failed_with"], late["calls_with"]) == (96, 108)
    assert (lost["test"], lost["failed_with"]) == (None, None)


LARGE = case(
    [{"text": "x" * 100_001}, {"text": "y", "n": 1}, {"text": "z"}],
    lambda a, _: len(a["text"]) > 1 or a["text"] == "y",
)
QUOTED = SERVERS.add(
    given_in(session, {"name": name, "mode": mode}, **outcome)
    for session in range(12)
    for name, mode, outcome in (
        ("nope", "w", REFUSED | {"template": "no <text>", "error_text": "no nope"}),
        ("a", "r", OK),
        ("b", "r", OK),
    )
)


SEVERAL = case(
    [{"zone": f"{kind}{n}", "n": n} for kind in ("bad", "good") for n in range(5)],
    lambda a, _: a["zone"].startswith("bad"),
    sessions=16,
)


def test_several_values_that_together_separate_failing_calls_are_named_together(answers):
    [row] = answers.of(SEVERAL, "contrasts")
    assert (row["aspect"], row["path"], row["test"]) == ("argument", "zone", "equals")
    assert {row["value"], *row["other_values"]} == {f"bad{n}" for n in range(5)}
    assert (row["failed_with"], row["calls_with"], row["failed_without"]) == (80, 80, 0)
    assert row["calls_without"] == 80


def test_calls_with_arguments_too_large_to_be_read_are_not_counted(answers):
    [row] = answers.of(LARGE, "contrasts")
    assert fact(row)[:2] == ("argument", "n")
    assert (row["failed_with"], row["calls_with"], row["worked_with"]) == (10, 10, 0)
    assert (row["failed_without"], row["calls_without"]) == (0, 10)


def test_a_value_that_the_message_quotes_is_preferred(answers):
    [row] = answers.of(QUOTED, "contrasts")
    assert fact(row) == ("argument", "name", "equals", "nope", False)


def test_failures_whose_arguments_worked_in_other_calls_are_counted(answers):
    [row] = answers.of(FLAKY, "contrasts")
    assert (row["calls"], row["also_worked"], row["test"]) == (10, 10, None)
    [row] = answers.of(FOUND[("argument", "zone", "equals", "Mars", False)], "contrasts")
    assert row["also_worked"] == 0


def test_a_masked_value_is_not_named(answers):
    [row] = answers.of(MASKED, "contrasts")
    assert "redacted" not in str(row["value"])


def test_hidden_errors_and_tool_failures_are_separate_groups(tmp_path):
    rows = calls(ZONES, lambda a, _: not a["zone"])
    rows += calls(ZONES, lambda a, _: a["zone"] == "Mars", kind=FAILED)
    found = build(tmp_path / "s", rows).ask("contrasts").pl()
    assert sorted(found["verdict"]) == ["business", "tool_failure"]


@pytest.mark.slow
def test_of_more_calls_than_are_compared_all_are_counted(tmp_path):
    rows = calls([{"n": n} for n in range(-10, 460)], lambda a, _: a["n"] < 0)
    [row] = build(tmp_path / "s", rows).ask("contrasts").pl().to_dicts()
    assert fact(row) == ("argument", "n", "sign", "negative", False)
    assert row["failed_with"] == row["calls"] == row["calls_with"] == 100
    assert (row["failed_without"], row["calls_without"]) == (0, 4600)
    assert not row["sampled"]


@pytest.mark.slow
def test_the_answer_says_how_many_groups_are_not_compared(tmp_path):
    rows = [
        call(
            n,
            "t",
            arguments=f'{{"n": {n}}}',
            **(FAILED | {"template": f"t{group}"} if group else OK),
        )
        for group in range(503)
        for n in range(5)
    ]
    found = build(tmp_path / "s", rows).ask("contrasts").pl()
    assert (found.height, set(found["not_compared"])) == (500, {2})


def test_a_fact_about_what_surrounds_calls_is_counted_call_by_call(tmp_path):
    """Repeated arguments in a session are separate calls: only one of them is the first call."""
    rows = [
        given_in(session, {"n": session % 7}, second=second, **outcome)
        for session in range(12)
        for second, outcome in enumerate([REFUSED | {"template": "not yet"}, OK, OK, OK])
    ]
    [row] = build(tmp_path / "s", rows).ask("contrasts").pl().to_dicts()
    assert (row["aspect"], row["test"]) == ("place", "first")
    assert (row["failed_with"], row["calls_with"]) == (12, 12)
    assert (row["failed_without"], row["calls_without"]) == (0, 36)


@pytest.mark.slow
def test_of_a_large_archive_whole_sessions_are_read(tmp_path):
    rows = calls([{"n": n} for n in range(-6, 594)], lambda a, _: a["n"] < 0, sessions=420)
    store = build(tmp_path / "s", rows)
    [row] = store.ask("contrasts").pl().to_dicts()
    assert (row["sampled"], row["not_compared"]) == (True, 0)
    assert row["calls"] == row["failed_with"] == row["calls_with"]
    assert row["calls_with"] * 99 == row["calls_without"]
    assert 80_000 < row["calls_with"] + row["calls_without"] < 120_000
    assert store.ask("contrasts", since="2000-01-01").pl().to_dicts() == [row]


@pytest.mark.slow
def test_a_filter_by_tool_gives_the_rows_of_the_whole_answer(answers):
    store = answers.store
    for server in list(FOUND.values())[:3]:
        assert store.ask("contrasts", server=server, tool="t").pl().to_dicts() == answers.of(
            server, "contrasts"
        )


@pytest.mark.slow
def test_contrasts_of_some_tools_are_those_of_all_tools(sample_store):
    problems = sample_store.ask("priorities").pl().to_dicts()
    every = by_group(sample_store.ask("contrasts").pl().drop("not_compared").to_dicts())
    some = {
        group: {name: row[name] for name in row if name != "not_compared"}
        for group, row in of_tools_with(problems[:3], sample_store.sql).items()
    }
    assert 0 < len(some) < len(every)
    assert some == {group: every[group] for group in some}
    for problem in problems[:3]:
        assert of_problem(problem, some) == of_problem(problem, every)


def sequence(fails, seed):
    """Calls to three tools in random order, of which `t` fails where `fails(before, at)` is true.

    `before` has the calls before it: tool, time, and whether it failed. A call takes about 10 s,
    and a third of them begin 5 s after the one before.
    """
    random_ = random.Random(seed)
    for session in range(24):
        at, before = BEGAN + timedelta(hours=session), []
        for _ in range(12):
            tool = random_.choice(("open", "list", "t", "t"))
            at += timedelta(seconds=5 if random_.random() < 0.3 else 40)
            broken = tool == "list" and random_.random() < 0.4
            failed = broken or ((tool == "t" and fails(before, at)) or random_.random() < 0.03)
            before.append((tool, at, failed))
            yield call(
                session,
                tool,
                arguments=json.dumps({"n": random_.randrange(5), "mode": random_.choice("rw")}),
                requested_at=at,
                latency_ms=10_000.0 if tool == "t" else 9_000.0,
                **(FAILED | {"template": "it failed"} if failed else OK),
            )


def ordered(seed, fails, *expected):
    return SERVERS.add(sequence(fails, seed)), set(expected)


ORDERED = {
    "the first call of a session": ordered(21, lambda before, _: not before, ("place", "first")),
    "calls late in a session": ordered(22, lambda before, _: len(before) >= 9, ("place", "late")),
    "the call before it": ordered(
        23, lambda before, _: before and before[-1][0] == "open", ("previous", "equals")
    ),
    "another open call": ordered(
        24,
        lambda before, at: before and at - before[-1][1] < timedelta(seconds=6),
        ("concurrent", "open"),
    ),
    "a failure of another tool": ordered(
        25,
        lambda before, _: before and before[-1][0] == "list" and before[-1][2],
        *(("previous", "failed"), ("others", "fail"), ("previous", "equals")),
    ),
}


@pytest.mark.parametrize("cause", ORDERED)
def test_a_cause_in_the_order_of_calls_is_found(cause, answers):
    server, expected = ORDERED[cause]
    [row] = [row for row in answers.of(server, "contrasts") if row["tool"] == "t"]
    found = {(row["aspect"], row["test"]), (row["and_aspect"], row["and_test"])} - {(None, None)}
    assert found <= expected
    assert found
