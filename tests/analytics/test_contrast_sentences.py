"""How rows of `contrasts` and facts about repetition are worded."""

import pytest

from mcptally.analytics.contrasts import by_group, fact, of_problem, repetition, sentence


def row(aspect, path, test, value, *, absent=False):
    about = {"aspect": aspect, "path": path, "test": test, "value": value, "absent": absent}
    return about | {"other_values": None}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (row("argument", "zone", "empty", "yes"), "`zone` is empty"),
        (row("argument", "zone", "given", "yes", absent=True), "`zone` is not given"),
        (row("argument", "a.b[]", "equals", "x"), "`a.b[]` is 'x'"),
        (row("argument", "n", "equals", "-1"), "`n` is -1"),
        (row("argument", "file", "ends", "/a.txt"), "`file` ends in '/a.txt'"),
        (row("argument", "file", "ends", ".md", absent=True), "`file` does not end in '.md'"),
        (row("argument", "n", "at_least", "1000"), "`n` is 1,000 or more"),
        (row("schema", None, "invalid", "yes"), "the arguments violate the input schema"),
        (
            row("schema", None, "invalid", "yes", absent=True),
            "the arguments satisfy the input schema",
        ),
        (
            row("schema", "pages", "at", "yes"),
            "the first violation of the input schema is at `pages`",
        ),
        (row("client_version", "cli", "equals", "2.0"), "the version of cli is 2.0"),
        (row("previous", None, "equals", "open"), "the call before it is to open"),
        (row("previous", None, "failed", "yes"), "another tool failed just before"),
        (row("place", None, "first", "yes", absent=True), "calls came before it"),
        (row("concurrent", None, "open", "yes"), "another call is open"),
        (row("latency", None, "at_least", "10"), "the call takes 10 s or more"),
        (row("hour", None, "equals", "9", absent=True), "the hour is not 9 (UTC)"),
        (row("time", None, "since", "2026-03-02"), "the call was made at or after 2026-03-02 UTC"),
    ],
)
def test_a_fact_is_worded(found, words):
    assert fact(found) == words


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["y"], "`a` is 'x' or 'y'"),
        (["y", "z"], "`a` is 'x', 'y' or 'z'"),
        (["y", "z", "w"], "`a` is 'x', 'y' or one of 2 other values"),
    ],
)
def test_several_values_are_worded(values, words):
    assert fact(row("argument", "a", "equals", "x") | {"other_values": values}) == words


@pytest.mark.parametrize("path", ["password", "login.password", "logins[].api_key"])
def test_a_value_that_its_name_makes_a_secret_is_masked(path):
    words = fact(row("argument", path, "equals", "123456"))
    assert "123456" not in words
    assert "[redacted:" in words


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        (
            (41, 41, 9, 10),
            "these arguments fail every time (41 of 41); others work (9 of 10 calls)",
        ),
        ((2, 2, 0, 4), "these arguments fail every time (2 of 2); all others fail, too"),
        ((2, 2, 0, 0), "these arguments fail every time (2 of 2); no others were tried"),
        ((3, 40, 0, 0), "the same call works and fails (3 of 40 fail)"),
        ((1, 1, 9, 10), None),
        ((0, 5, 9, 10), None),
    ],
)
def test_what_calls_with_the_same_arguments_did_is_worded(counts, words):
    names = ("same_failed", "same_calls", "other_worked", "other_calls")
    assert repetition(dict(zip(names, counts, strict=True))) == words


def group(**fields):
    about = {"server": "s", "tool": "t", "template": "x", "verdict": "tool_failure"}
    about |= {"calls": 40, "also_worked": 0}
    numbers = {"failed_with": 40, "calls_with": 40, "worked_with": 0}
    numbers |= {"failed_without": 0, "calls_without": 9}
    named = {f"and_{name}": None for name in row(*[None] * 4)}
    return (
        about | numbers | named | row(*[None] * 4) | {"offered": False, "sampled": False} | fields
    )


EMPTY = row("argument", "zone", "empty", "yes")
COUNTS = "40 of 40 calls fail this way; otherwise 0 of 9"
PRICED = row("argument", "unit", "equals", "k")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (group(**EMPTY), f"when `zone` is empty: {COUNTS}"),
        (
            group(**PRICED, offered=True),
            f"when `unit` is 'k' (a value that the schema offers): {COUNTS}",
        ),
        (
            group(**PRICED | {"absent": True}, offered=True),
            f"when `unit` is not 'k': {COUNTS}",
        ),
        (
            group(**EMPTY, sampled=True),
            f"when `zone` is empty: {COUNTS} (in a sample of the sessions)",
        ),
        (
            group(**EMPTY, calls_with=50, worked_with=7),
            "when `zone` is empty: 40 of 50 calls fail this way and 7 work; otherwise 0 of 9",
        ),
        (
            group(**EMPTY, calls_with=50),
            "when `zone` is empty: 40 of 50 calls fail this way and none works; otherwise 0 of 9",
        ),
        (group(also_worked=20), "the arguments of 20 of 40 failing calls work in other calls"),
        (group(also_worked=40), "the arguments of all 40 failing calls work in other calls"),
        (group(also_worked=19), None),
    ],
)
def test_what_failing_calls_share_is_worded(found, words):
    assert sentence(found) == words


def test_the_contrast_of_a_problem_is_that_of_its_example():
    found = by_group([group(**EMPTY), group(**PRICED, verdict="infrastructure")])
    problem = {"servers": ["s"], "tools": ["t"], "template": "x", "verdict": "tool_failure"}
    counts = "40 of 40 calls fail with the example's message; otherwise 0 of 9"
    assert of_problem(problem, found) == f"when `zone` is empty: {counts}"
    assert of_problem(problem | {"verdict": "business"}, found) is None
    several = problem | {"servers": ["r", "s"], "tools": ["u", "t"]}
    assert of_problem(several, found) == f"s, t, when `zone` is empty: {counts}"
