"""Answers replace verdicts while an archive is scored, and reach no further than they should."""

import pytest

import mcptally as mt
from mcptally.errors import UnreadableError
from tests.review.archives import OK, UNKNOWN_TOPIC, full, recording, scored, session, verdicts
from tests.transcripts import write

pytestmark = pytest.mark.slow


def answered(store, answer, *, group, words="printing"):
    review = session(store)
    item = next(item for item in review.next_items(9) if words in item.error_text)
    review.answer(item, answer, group=group)
    return item


def again(folder):
    mt.score(folder / "traces", out=folder / "store")
    return mt.open_store(folder / "store")


def test_a_reviewed_call_has_the_verdict_of_the_reviewer(tmp_path):
    item = answered(scored(tmp_path), "tool", group=False)
    found = verdicts(again(tmp_path))
    reviewed = ("tool_error", "tool_failure", "tool", "review")
    place = ("a", (item.key.seq - 3) // 2)
    assert found.pop(place) == reviewed
    assert not any((rule or "").startswith("review") for *_, rule in found.values())


def test_an_answer_about_a_group_reaches_its_calls_and_is_marked_as_inferred(tmp_path):
    answered(scored(tmp_path), "network", group=True)
    found = verdicts(again(tmp_path))
    rules = [found["a", number][3] for number in range(5)]
    assert sorted(rules) == ["review"] + ["review.group"] * 4
    assert {found["a", number][1:3] for number in range(5)} == {("infrastructure", "network")}
    assert found["a", 5][3] not in ("review", "review.group")


def test_an_answer_about_a_group_reaches_its_later_calls_and_no_calls_of_other_groups(tmp_path):
    answered(scored(tmp_path), "network", group=True)
    other_words = ("Quota of the printing service used up: 7 of 'x' pages", True)
    for events in (
        recording("b", [full(7), UNKNOWN_TOPIC, other_words]),
        recording("c", [full(7)], description="Print it"),
        recording("d", [full(7)], server="other"),
    ):
        write(tmp_path / "traces" / f"{events[0]['recording']}.jsonl", events)
    found = verdicts(again(tmp_path))
    assert found["b", 0] == ("tool_error", "infrastructure", "network", "review.group")
    for place in (("b", 1), ("b", 2), ("c", 0), ("d", 0)):
        assert found[place][3] != "review.group", place


def test_what_is_not_an_error_gets_no_verdict_and_counts_as_a_success(tmp_path):
    item = answered(scored(tmp_path), "not_an_error", group=False)
    store = again(tmp_path)
    place = ("a", (item.key.seq - 3) // 2)
    assert verdicts(store)[place] == ("ok", None, None, "review")
    assert store.sql("SELECT ok FROM tool_scores").fetchall() == [(7,)]


def test_a_result_that_is_an_error_becomes_a_hidden_error_with_a_template(tmp_path):
    store = scored(tmp_path)
    review = session(store)
    review.draw(20)
    item = next(item for item in review.next_items(20, mode="sample") if item.verdict is None)
    review.answer(item, "tool")
    store = again(tmp_path)
    rows = store.sql("SELECT verdict, error_text, template FROM calls WHERE rule = 'review'")
    assert rows.fetchall() == [("tool_failure", "fine", "fine")]
    assert store.sql("SELECT hidden_errors, tool_failures FROM tool_scores").fetchall() == [(1, 1)]


def test_an_answer_to_a_call_whose_reply_has_another_text_is_ignored(tmp_path):
    answered(scored(tmp_path), "network", group=False)
    write(tmp_path / "traces" / "a.jsonl", recording("a", [UNKNOWN_TOPIC] * 9))
    assert "review" not in {rule for *_, rule in verdicts(again(tmp_path)).values()}


def test_only_recordings_that_an_answer_is_about_are_scored_again(tmp_path):
    other = recording("b", [OK], server="other")
    store = scored(tmp_path, other)
    answered(store, "network", group=True)
    assert mt.score(tmp_path / "traces", out=tmp_path / "store").reused == 1
    assert mt.score(tmp_path / "traces", out=tmp_path / "store").reused == 2
    (tmp_path / "traces" / "reviews.jsonl").unlink()
    assert mt.score(tmp_path / "traces", out=tmp_path / "store").reused == 1
    assert "review" not in {rule for *_, rule in verdicts(mt.open_store(store.path)).values()}


def test_scoring_in_steps_gives_the_calls_of_scoring_at_once(tmp_path):
    answered(scored(tmp_path), "network", group=True)
    stepwise = again(tmp_path)
    mt.score(tmp_path / "traces", out=tmp_path / "fresh")
    every = "SELECT * FROM calls ORDER BY call_id"
    assert stepwise.sql(every).pl().equals(mt.open_store(tmp_path / "fresh").sql(every).pl())


def test_answers_of_a_named_file_are_applied(tmp_path):
    store = scored(tmp_path)
    session(store, tmp_path / "mine.jsonl").answer(session(store).next_items()[0], "client")
    mt.score(tmp_path / "traces", out=tmp_path / "store", reviews=tmp_path / "mine.jsonl")
    assert "client" in {fault for _, _, fault, _ in verdicts(mt.open_store(store.path)).values()}
    with pytest.raises(UnreadableError, match=r"none\.jsonl: no such file of answers"):
        mt.score(tmp_path / "traces", out=tmp_path / "store", reviews=tmp_path / "none.jsonl")


def test_a_file_of_answers_is_not_read_as_a_transcript(tmp_path):
    answered(scored(tmp_path), "network", group=True)
    mt.score(sorted((tmp_path / "traces").iterdir()), out=tmp_path / "named")
    store = mt.open_store(tmp_path / "named")
    assert store.sql("SELECT count(*) FROM findings WHERE about = 'file'").fetchall() == [(0,)]
    assert "review" in {rule for *_, rule in verdicts(store).values()}
