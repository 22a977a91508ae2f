from pathlib import Path

import pytest

import mcptally as mt
from mcptally.analytics import explain
from mcptally.errors import QueryError
from tests.transcripts import c2s, call, opened, s2c, text, write


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> mt.Store:
    folder: Path = tmp_path_factory.mktemp("show")
    failure = "TypeError: Cannot read properties of undefined (reading 'id')"
    events = [
        opened(server="demo"),
        c2s(1, call(1, "read", path="a")),
        s2c(2, text(1, failure, isError=True)),
        c2s(3, call(2, "read", path="a")),
        s2c(4, text(2, "contents")),
        c2s(5, call(3, "read", path="\x1b[31mred")),
    ]
    mt.score([write(folder / "x.jsonl", events)], out=folder / "store")
    return mt.open_store(folder / "store")


def ids(store: mt.Store) -> list[str]:
    return [row[0] for row in store.sql("SELECT call_id FROM calls ORDER BY seq").fetchall()]


def test_a_failed_call_shows_request_reply_verdict_rules_and_attempts(store: mt.Store):
    first, second, _ = ids(store)
    words = explain.text(explain.explain(store, first))
    for expected in (
        "tools/call read",
        '"path": "a"',
        "Cannot read properties",
        "Verdict: tool_failure",
        " for     the first rule about the text says tool_failure",
        "rules that match, in order",
        "matches 'Cannot read properties",
        "Seed score, by the seed document",
        "Seed score, by its original program",
        f"{second} ok",
    ):
        assert expected in words


def test_the_first_matching_rule_is_the_one_that_decided(store: mt.Store):
    for name in ids(store):
        found = explain.explain(store, name)
        assert (found.rules[0]["id"] if found.rules else None) == found.call["rule"]


def test_a_call_that_did_not_fail_has_no_verdict(store: mt.Store):
    assert "the call did not fail" in explain.text(explain.explain(store, ids(store)[1]))


def test_the_beginning_of_an_id_is_enough(store: mt.Store):
    first = ids(store)[0]
    assert explain.explain(store, first[:10]).call["call_id"] == first


@pytest.mark.parametrize(("name", "words"), [("nope", "no call has the id"), ("", "several")])
def test_an_id_of_no_call_or_of_several_is_rejected(store: mt.Store, name: str, words: str):
    with pytest.raises(QueryError, match=words):
        explain.explain(store, name)
