"""Answers replace verdicts while an archive is scored, and only those in their scope."""

import pytest

import mcptally as mt
from mcptally.errors import UnreadableError
from tests.review.archives import OK, UNKNOWN_TOPIC, full, recording, scored, session, verdicts
from tests.transcripts import write

pytestmark = pytest.mark.slow


def answered(store, answer, *, group=False, **about):
    """Answer the largest group of a server, and return what was answered."""
    review = session(store, **about)
    (item,) = review.next_items()
    review.answer(item, answer, group=group)
    return item


def again(folder):
    mt.score(folder / "traces", out=folder / "store")
    return mt.open_store(folder / "store")


@pytest.fixture(scope="module")
def applied(tmp_path_factory):
    """A store whose servers were reviewed in different ways, then scored with later recordings.

    The answer about `demo` applies to a group.
    """
    folder = tmp_path_factory.mktemp("applied")
    servers = {"one": [full(n) for n in range(3)], "not": [full(1), OK, OK], "hidden": [OK] * 3}
    store = scored(folder, *(recording(name, said, server=name) for name, said in servers.items()))
    answered(store, "network", group=True, server="demo")
    answered(store, "tool", server="one")
    answered(store, "not_an_error", server="not")
    review = session(store)
    ((call,),) = store.sql(
        "SELECT min(call_id) FROM calls WHERE server = 'hidden' AND tool = 'echo'"
    ).fetchall()
    review.answer(review.item(call), "tool")
    other_words = ("Quota of the printing service used up: 7 of 'x' pages", True)
    for events in (
        recording("b", [full(7), UNKNOWN_TOPIC, other_words]),
        recording("c", [full(7)], description="Print it"),
        recording("d", [full(7)], server="other"),
    ):
        write(folder / "traces" / f"{events[0]['recording']}.jsonl", events)
    return again(folder)


def test_a_reviewed_call_has_the_verdict_of_the_reviewer(applied):
    found = [verdict for (name, _), verdict in verdicts(applied).items() if name == "one"]
    assert found.count(("tool_error", "tool_failure", "tool", "review")) == 1
    assert sum((rule or "").startswith("review") for *_, rule in found) == 1


def test_an_answer_about_a_group_reaches_its_calls_and_is_marked_as_inferred(applied):
    found = verdicts(applied)
    rules = [found["a", number][3] for number in range(5)]
    assert sorted(rules) == ["review"] + ["review.group"] * 4
    assert {found["a", number][1:3] for number in range(5)} == {("infrastructure", "network")}
    assert found["a", 5][3] not in ("review", "review.group")


def test_an_answer_about_a_group_reaches_its_later_calls_and_no_calls_of_other_groups(applied):
    found = verdicts(applied)
    assert found["b", 0] == ("tool_error", "infrastructure", "network", "review.group")
    for place in (("b", 1), ("b", 2), ("c", 0), ("d", 0)):
        assert found[place][3] != "review.group", place


def test_what_is_not_an_error_gets_no_verdict_and_counts_as_a_success(applied):
    assert verdicts(applied)["not", 0] == ("ok", None, None, "review")
    scores = applied.ask("tool_scores", server="not")
    assert scores.pl()["ok"].to_list() == [3]


def test_a_result_that_is_an_error_becomes_a_hidden_error_with_a_template(applied):
    query = "SELECT verdict, error_text, template FROM calls WHERE server = ? AND rule = 'review'"
    rows = applied.sql(query, params=["hidden"])
    assert rows.fetchall() == [("tool_failure", "fine", "fine")]
    scores = applied.ask("tool_scores", server="hidden").pl()
    assert scores["hidden_errors", "tool_failures"].rows() == [(1, 1)]


def test_scoring_in_steps_gives_the_calls_of_scoring_at_once(applied, tmp_path):
    # Each file is named; the file of answers is not a transcript.
    files = sorted((applied.path.parent / "traces").iterdir())
    assert "reviews.jsonl" in {path.name for path in files}
    mt.score(files, out=tmp_path / "fresh")
    fresh = mt.open_store(tmp_path / "fresh")
    every = "SELECT * FROM calls ORDER BY call_id"
    assert applied.sql(every).pl().equals(fresh.sql(every).pl())
    assert fresh.sql("SELECT count(*) FROM findings WHERE about = 'file'").fetchall() == [(0,)]


def test_only_recordings_that_an_answer_is_about_are_scored_again(tmp_path):
    store = scored(tmp_path, recording("b", [OK], server="other"))
    answered(store, "network", group=True)
    assert mt.score(tmp_path / "traces", out=tmp_path / "store").reused == 1
    assert mt.score(tmp_path / "traces", out=tmp_path / "store").reused == 2
    (tmp_path / "traces" / "reviews.jsonl").unlink()
    assert mt.score(tmp_path / "traces", out=tmp_path / "store").reused == 1
    assert "review" not in {rule for *_, rule in verdicts(mt.open_store(store.path)).values()}


def test_answers_of_a_named_file_are_applied_but_not_to_a_reply_of_another_text(tmp_path):
    store, mine = scored(tmp_path), tmp_path / "mine.jsonl"
    session(store, mine).answer(session(store).next_items()[0], "client")
    mt.score(tmp_path / "traces", out=tmp_path / "store", reviews=mine)
    assert "client" in {fault for _, _, fault, _ in verdicts(mt.open_store(store.path)).values()}
    write(tmp_path / "traces" / "a.jsonl", recording("a", [UNKNOWN_TOPIC] * 9))
    mt.score(tmp_path / "traces", out=tmp_path / "store", reviews=mine)
    assert "review" not in {rule for *_, rule in verdicts(mt.open_store(store.path)).values()}
    with pytest.raises(UnreadableError, match=r"none\.jsonl: no such file of answers"):
        mt.score(tmp_path / "traces", out=tmp_path / "store", reviews=tmp_path / "none.jsonl")
