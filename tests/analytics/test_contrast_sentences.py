"""How rows of `contrasts` are worded."""

import pytest

from mcptally.analytics.contrasts import fact


def row(aspect, path, test, value, *, absent=False):
    return {"aspect": aspect, "path": path, "test": test, "value": value, "absent": absent}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (row("argument", "zone", "empty", "yes"), "`zone` is empty"),
        (row("argument", "zone", "given", "yes", absent=True), "`zone` is not given"),
        (row("argument", "a.b[]", "equals", "x"), "`a.b[]` is 'x'"),
        (row("argument", "n", "at_least", "1000"), "`n` is 1,000 or more"),
        (row("schema", None, "invalid", "yes"), "the arguments violate the input schema"),
        (
            row("schema", None, "invalid", "yes", absent=True),
            "the arguments satisfy the input schema",
        ),
        (row("schema", "pages", "invalid", "yes"), "`pages` violates the input schema"),
        (row("client_version", "cli", "equals", "2.0"), "the version of cli is 2.0"),
        (row("time", None, "since", "2026-03-02"), "made from 2026-03-02 UTC on"),
    ],
)
def test_a_fact_is_worded(found, words):
    assert fact(found) == words


@pytest.mark.parametrize("path", ["password", "login.password", "logins[].api_key"])
def test_a_value_that_its_name_makes_a_secret_is_masked(path):
    words = fact(row("argument", path, "equals", "hunter2"))
    assert "hunter2" not in words
    assert "[redacted:" in words
