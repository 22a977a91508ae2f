import dataclasses
from pathlib import Path

import pytest

import mcptally as mt
from mcptally.analytics import explain, explanation
from mcptally.errors import QueryError
from mcptally.tables import values
from tests.analytics import built_stores
from tests.transcripts import (
    c2s,
    call,
    error,
    event,
    exchange,
    opened,
    request,
    s2c,
    text,
    write,
)
from tests.verdict.test_user_rules import ADDED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> mt.Store:
    folder: Path = tmp_path_factory.mktemp("show")
    failure = "TypeError: Cannot read properties of undefined (reading 'id')"
    events = [
        opened(server="demo"),
        *exchange(call(1, "read", path="a"), text(1, failure, isError=True)),
        event("stderr", 2, text="Authorization: Bearer abcdefgh12345678\n    at read (x.js:1)"),
        *exchange(call(2, "read", path="a"), text(2, "contents"), first=3),
        c2s(5, call(3, "read", path="\x1b[31mred")),
    ]
    mt.score([write(folder / "x.jsonl", events)], out=folder / "store")
    return mt.open_store(folder / "store")


@pytest.fixture(scope="module")
def each(store: mt.Store) -> dict[str, explanation.Explanation]:
    """Map each call's id to its explanation, computed separately."""
    return {call_id: explain.explain(store, call_id) for call_id in ids(store)}


def ids(store: mt.Store) -> list[str]:
    return [row[0] for row in store.sql("SELECT call_id FROM calls ORDER BY seq").fetchall()]


def test_a_failed_call_shows_request_reply_verdict_rules_and_attempts(each):
    first, second, _ = each
    words = explanation.text(each[first])
    for expected in (
        "tools/call read",
        '"path": "a"',
        "Cannot read properties",
        "Verdict: tool_failure",
        " for     the first rule about the text says tool_failure",
        "rules that match, in order",
        "matches 'Cannot read properties",
        f"{second} ok",
        "the same call works and fails (1 of 2 fail)",
    ):
        assert expected in words


@pytest.mark.parametrize(("arguments", "fact"), [('{"zone":""}', "empty"), (None, "not given")])
def test_a_failed_call_shows_what_calls_that_fail_alike_have_in_common(
    tmp_path: Path, arguments, fact
):
    calls = [
        built_stores.call(session, arguments=sent, **outcome)
        for session in range(9)
        for sent, outcome in (
            (arguments, built_stores.FAILED | {"template": "no zone"}),
            ('{"zone":"UTC"}', built_stores.OK),
        )
    ]
    store = built_stores.build(tmp_path / "s", calls)
    failed, worked, *_ = ids(store)
    shared = f"  when `zone` is {fact}: 9 of 9 calls fail this way; otherwise 0 of 9\n"
    assert shared in str(store.show(failed))
    assert "Other calls to the tool" not in str(store.show(worked))


@pytest.mark.parametrize(
    ("failure", "fault"),
    [
        ("misconfigured", "fault: client: the server's start failed (misconfigured: arguments,"),
        (None, "fault: tool (the tool or its server)"),
    ],
)
def test_a_call_that_a_crash_left_unanswered_shows_why(tmp_path: Path, failure, fault):
    crash = built_stores.FAILED | {"outcome": "no_response", "reason": "server_crash"}
    calls = [built_stores.call("a", None, method="initialize", fault="tool", **crash)]
    calls.append(built_stores.call("b"))
    ends = {"server": "s", "start_failure": failure, "last_words": "API_KEY is not set"}
    recordings = [{"recording": name} | ends for name in ("a", "b")]
    store = built_stores.build(tmp_path / "s", calls, recordings=recordings)
    unanswered, worked = ids(store)
    shown = str(store.show(unanswered))
    assert f"  reason server_crash, {fault}" in shown
    assert "  last words: API_KEY is not set\n" in shown
    assert store.show(worked).crash is None


def test_a_call_shows_its_frames_and_stderr_from_the_transcript(store: mt.Store):
    found = store.show(ids(store)[0])
    words = str(found)
    for expected in ('"jsonrpc": "2.0"', '"isError": true', "[between request and reply]"):
        assert expected in words
    assert "    at read (x.js:1)" in words
    assert "abcdefgh12345678" not in words
    assert "abcdefgh12345678" not in str(dataclasses.asdict(explanation.masked(found)))
    assert "[between request and reply]" in found._repr_mimebundle_()["text/html"]


def test_long_stderr_is_cut_per_line_and_at_its_start_unless_all_is_asked_for(each):
    lines = "first\n" + "x" * 500 + "\n" + 40 * ("y" * 90 + "\n") + "last"
    found = dataclasses.replace(next(iter(each.values())), stderr={"during": lines})
    cut = explanation.text(found)
    assert "  … 3 lines, then:\n" in cut
    assert "  last\n" in cut
    whole = explanation.text(found, limit=100_000)
    assert f"  first\n  {'x' * 500}\n" in whole
    found = dataclasses.replace(found, stderr={"during": "z" * 4_000 + "\nlast"})
    assert f"  {'z' * 400} … and 3,600 more\n  last\n" in explanation.text(found)


def test_a_call_is_explained_by_the_users_rules_that_its_store_was_scored_with(tmp_path: Path):
    rules = tmp_path / "rules.toml"
    rules.write_text(ADDED)
    talk = exchange(call(1, "read"), text(1, "the moon is in retrograde", isError=True))
    path = write(tmp_path / "x.jsonl", [opened(), *talk])
    mt.score([path], out=tmp_path / "store", rules=rules)
    found = mt.open_store(tmp_path / "store").show("")
    assert "decided by verdict.mine.moon alone" in str(found)


@pytest.mark.parametrize(
    ("payloads", "why"), [(True, "No such file"), (False, "made with --no-payloads")]
)
def test_a_call_whose_transcript_is_not_read_says_why(tmp_path: Path, payloads: bool, why: str):
    path = write(tmp_path / "x.jsonl", [opened(), c2s(1, call(1, "read", path="secret-plan"))])
    mt.score([path], out=tmp_path / "store", payloads=payloads)
    if payloads:
        path.unlink()
    found = mt.open_store(tmp_path / "store").show("")
    assert why in str(found)
    assert ("secret-plan" in str(found)) == payloads
    assert "jsonrpc" not in str(found)
    assert why in found._repr_mimebundle_()["text/html"]


def test_transcripts_are_found_from_another_folder_and_after_a_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "before").mkdir()
    monkeypatch.chdir(tmp_path / "before")
    write(Path("x.jsonl"), [opened(), c2s(1, call(1, "read"))])
    mt.score(["x.jsonl"], out="store")
    monkeypatch.chdir(tmp_path)
    assert "jsonrpc" in str(mt.open_store(Path("before/store")).show(""))
    Path("before").rename("after")
    assert "jsonrpc" in str(mt.open_store(Path("after/store")).show(""))


def test_seed_scores_are_shown_only_if_asked_for(store: mt.Store, each):
    call_id, *_ = each
    without, seeded = each[call_id], explain.explain(store, call_id, seed=True)
    assert without.seed is None
    assert "Seed score" not in explanation.text(without)
    words = explanation.text(seeded)
    for expected in (
        "Scenario of the seed: happy_path (from: arguments)",
        "Seed score, by the seed document",
        "Seed score, by its original program",
    ):
        assert expected in words


def test_a_call_that_did_not_fail_has_no_verdict(each):
    _, worked, _ = each.values()
    assert "the call did not fail" in explanation.text(worked)


def test_the_beginning_of_an_id_is_enough(store: mt.Store):
    first = ids(store)[0]
    assert explain.explain(store, first[:10]).call["call_id"] == first


@pytest.mark.parametrize(
    ("name", "words"), [("nope", "no call has the id"), ("", "3 calls have ids that begin with ''")]
)
def test_an_id_of_no_call_or_of_several_is_rejected(store: mt.Store, name: str, words: str):
    with pytest.raises(QueryError, match=words):
        explain.explain(store, name)


def test_calls_explained_together_are_explained_as_each_alone(store: mt.Store, each):
    assert explain.explain_calls(store, [*each, "0" * 16], longest=10_000) == each


def test_a_long_reply_is_read_up_to_the_given_length_only(store: mt.Store, each):
    first, *_ = each
    cut = explain.explain_calls(store, [first], longest=7)[first]
    assert len(cut.call["response"]) == 7
    assert cut.rules == each[first].rules


def test_what_is_said_about_a_verdict_agrees_with_its_numbers(tmp_path: Path):
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    events = [
        opened(),
        *exchange(
            *(call(1, "read"), cancelled),
            *(call(2, "read "), text(2, "Error: no such table: people")),
            *(call(3, "read"), text(3, "Zork 7", isError=True)),
            *(request(4, "prompts/get", name="p"), error(4, -32602, "Unknown prompt: p")),
        ),
        s2c(9, request(1, "roots/list")),
        c2s(10, error(1, -32600, "List roots not supported")),
    ]
    mt.score([write(tmp_path / "x.jsonl", events)], out=tmp_path / "store")
    scored = mt.open_store(tmp_path / "store")
    shown = [explain.explain(scored, name) for name in ids(scored)]
    unanswered, hidden, vague, prompt, roots = map(explanation.text, shown)
    assert "Verdict: none, because the outcome of the call is unknown" in unanswered
    assert hidden.startswith("tools/call 'read '\n")
    call_row, probabilities = shown[1].call, shown[1].probabilities
    certainty = min(call_row["hidden_certainty"], 100 * probabilities[call_row["verdict"]])
    assert call_row["certainty"] == pytest.approx(certainty, abs=0.1)
    alone = "%, from this call alone: the lower of the probability that the result reports a"
    assert f"{alone} failure, 9" in hidden
    assert "reason unclear, fault: unknown\n" in vague
    assert "  ambiguous, because no" in vague
    assert "business: the server did its job" in prompt
    assert "direction   from the server to the client" in roots
    assert "business: the client did its job" in roots
    assert "fault: tool (the tool or its server)\n" in roots
    certain = values.whole_certainty(shown[4].call["certainty"])
    assert f"  certainty {certain} %" in roots
    assert f"  business {certain}%, " in roots
