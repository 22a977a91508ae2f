"""Simulated tools that fail for a known cause, or for none: `contrasts` finds exactly the known
ones.

Each tool gets random arguments from several clients in 24 sessions, and 3 % of its calls fail for
no reason.
"""

import json
import random
from datetime import timedelta

import pytest

from tests.analytics.built_stores import BEGAN, FAILED, OK, Servers, call

SERVERS = Servers()
ZONES = ("UTC", "Asia/Tokyo", "Europe/Paris", "", "Mars")
CLIENTS = ("editor", "agent", "script")


def arguments(random_):
    given = {
        "zone": random_.choice(ZONES),
        "n": random_.choice((-7, -1, 3, 40, 2000)),
        "path": random_.choice(("/etc/hosts", "notes.txt", "../up", "a b.md")),
        "tags": random_.choice(([], ["a"], ["a", "b"], ["a", "b"] * 6)),
        "mode": random_.choice(("read", "write")),
        "data": {"price": random_.choice((-5, 0.5, 9))},
        "text": random_.choice(("short", "z" * 150, "ünïcode", "two\nlines")),
    }
    if random_.random() < 0.3:
        del given["mode"]
    return given


def simulated(fails, seed, *, noise=0.03):
    """Return calls to a tool that fails if `fails(arguments, client, session, random)` is true."""
    random_ = random.Random(seed)
    for session in range(24):
        client = CLIENTS[session % 3]
        for number in range(8):
            given = arguments(random_)
            failed = fails(given, client, session, random_) or random_.random() < noise
            yield call(
                session,
                arguments=json.dumps(given),
                client=client,
                requested_at=BEGAN + timedelta(hours=session, minutes=number),
                **(FAILED | {"template": "it failed"} if failed else OK),
            )


def planted(seed, fails, *expected, **options):
    return SERVERS.add(simulated(fails, seed, **options)), set(expected)


def likely(share):
    """Return a cause that makes calls fail with this probability."""
    return lambda _, __, ___, random_: random_.random() < share


FOUND = {
    "a long list": planted(8, lambda a, *_: len(a["tags"]) > 10, ("tags", "items")),
    "a long text": planted(11, lambda a, *_: len(a["text"]) > 100, ("text", "longer")),
    "characters beyond ASCII": planted(
        12, lambda a, *_: not a["text"].isascii(), ("text", "equals"), ("text", "form")
    ),
    "a value, most of the time": planted(
        16,
        lambda a, _, __, random_: a["zone"] == "Mars" and random_.random() < 0.8,
        ("zone", "equals"),
    ),
}
"""Facts that tests/analytics/test_contrasts.py does not name, and a cause that is none always."""


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
                arguments=json.dumps(arguments(random_)),
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
NOT_FOUND = {
    "chance": planted(17, likely(0.3)),
    "rare chance": planted(18, likely(0.08)),
    "whole sessions": planted(19, lambda _, __, session, ___: session * 7 % 11 < 3),
    "nothing ever works": planted(20, lambda *_: True),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return SERVERS.build(tmp_path_factory.mktemp("planted") / "s")


@pytest.mark.parametrize("cause", FOUND)
def test_a_planted_cause_is_found(cause, answers):
    server, expected = FOUND[cause]
    [row] = answers.of(server, "contrasts")
    found = {(row["path"], row["test"]), (row["and_path"], row["and_test"])} - {(None, None)}
    assert found <= expected
    assert row["share_with_low"] > row["share_without_high"]


@pytest.mark.parametrize("cause", ORDERED)
def test_a_cause_in_the_order_of_calls_is_found(cause, answers):
    server, expected = ORDERED[cause]
    [row] = [row for row in answers.of(server, "contrasts") if row["tool"] == "t"]
    found = {(row["aspect"], row["test"]), (row["and_aspect"], row["and_test"])} - {(None, None)}
    assert found <= expected
    assert found


@pytest.mark.parametrize("cause", NOT_FOUND)
def test_no_cause_is_found_where_none_is(cause, answers):
    server, _ = NOT_FOUND[cause]
    assert [row["test"] for row in answers.of(server, "contrasts")] in ([None], [])
