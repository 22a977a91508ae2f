"""A review shows the largest doubtful groups first, keeps answers, and can be continued."""

import json
import shutil

import pytest

import mcptally as mt
from mcptally.errors import UnreadableError, UsageError
from mcptally.review import answers
from tests.review.archives import scored, session


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return scored(tmp_path_factory.mktemp("reviewed"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "reviews.jsonl"


@pytest.mark.slow
def test_the_groups_that_decide_most_doubtful_calls_come_first(store, path):
    shown = session(store, path).next_items(9)
    assert [(item.calls, item.template) for item in shown] == [
        (5, "Quota of the printing service used up: <n> of <n> pages"),
        (2, "No topic called <text> was subscribed to"),
    ]
    assert [round(item.share, 3) for item in shown] == [0.714, 0.286]


def test_the_file_has_no_payload(store, path):
    review = session(store, path)
    review.answer(review.next_items()[0], "upstream", why="as the vendor says", group=True)
    (line,) = path.read_text().splitlines()
    assert "Quota" not in line
    row = json.loads(line)
    assert row.keys() == {
        *("kind", "recording", "seq", "dir", "answer", "who", "at", "scope", "server", "tool"),
        *("group", "definition", "text", "why", "verdict"),
    }
    assert (row["answer"], row["who"], row["why"]) == ("upstream", "ann", "as the vendor says")


def test_a_review_goes_on_where_it_stopped(store, path):
    review = session(store, path)
    review.answer(review.next_items()[0], "upstream", group=True)
    (item,) = session(store, path).next_items(9)
    assert item.template.startswith("No topic")


def test_progress_says_what_is_decided_and_what_the_next_answers_would_decide(store, path):
    review = session(store, path)
    before = review.progress()
    review.answer(review.next_items()[0], "upstream", group=True)
    after = review.progress()
    assert (before.answered, before.total, before.decided) == (0, 2, 0)
    assert (after.answered, after.total) == (1, 2)
    assert after.decided == pytest.approx(5 / 7)
    assert (before.next_share, after.next_share) == (1, pytest.approx(2 / 7))


@pytest.mark.slow
def test_progress_is_the_same_after_a_run_applied_the_answers(tmp_path):
    opened = scored(tmp_path)
    review = session(opened)
    large, small = review.next_items(2)
    review.answer(large, "upstream")
    review.answer(small, "not_an_error", group=True)
    worked = opened.sql("SELECT min(call_id) FROM calls WHERE tool = 'echo' AND outcome = 'ok'")
    ((call,),) = worked.fetchall()
    review.answer(review.item(call), "tool")
    before = review.progress()
    mt.score(tmp_path / "traces", out=opened.path)
    assert session(mt.open_store(opened.path)).progress() == before
    assert before.decided == pytest.approx(3 / 7)


def test_an_answer_about_one_call_decides_one_call(store, path):
    review = session(store, path)
    review.answer(review.next_items()[0], "upstream")
    assert review.progress().decided == pytest.approx(1 / 7)


def test_a_skipped_item_comes_back_in_the_next_session(store, path):
    review = session(store, path)
    (first,) = review.next_items()
    review.skip(first)
    assert first.call_id not in {item.call_id for item in review.next_items(9)}
    assert session(store, path).next_items() == [first]


def test_undo_withdraws_the_newest_answer_of_this_reviewer_only(store, path):
    ann, bob = session(store, path), session(store, path, "bob")
    one, other = ann.next_items(2)
    ann.answer(one, "upstream")
    ann.answer(other, "caller")
    bob.answer(one, "upstream")
    assert ann.undo().answer == "caller"
    assert {(row.who, row.answer) for row in ann.reviews.current().values()} == {
        ("ann", "upstream"),
        ("bob", "upstream"),
    }
    assert ann.undo().answer == "upstream"
    assert ann.undo() is None


def test_a_new_answer_to_a_call_replaces_the_old_one(store, path):
    review = session(store, path)
    (item,) = review.next_items()
    review.answer(item, "upstream")
    review.answer(item, "cannot_tell")
    assert [row.answer for row in review.settled.calls.values()] == ["cannot_tell"]


def test_files_of_several_people_are_merged_by_concatenation(store, tmp_path):
    parts = [tmp_path / f"{who}.jsonl" for who in ("ann", "bob")]
    for part, answer in zip(parts, ("caller", "account"), strict=True):
        review = session(store, part, part.stem)
        review.answer(review.next_items()[0], answer)
    both = tmp_path / "both.jsonl"
    both.write_bytes(b"".join(part.read_bytes() for part in (*parts, parts[0])))
    assert len(answers.read(both).answers) == 2


def test_an_unknown_answer_is_refused_with_what_is_near(store, path):
    review = session(store, path)
    with pytest.raises(UsageError, match="did you mean caller"):
        review.answer(review.next_items()[0], "callers")
    assert not path.exists()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "is not an answer"),
        ('{"kind":"other"}', "is not an answer"),
        (
            '{"kind":"answer","recording":"a","seq":1,"dir":"c2s","answer":"x","who":"a","at":""}',
            "'x' is not an answer",
        ),
    ],
)
def test_a_bad_line_is_named(store, path, line, why):
    path.write_text(f"\n{line}\n")
    with pytest.raises(UnreadableError, match=rf"reviews\.jsonl:2: .*{why}"):
        session(store, path)


def test_answers_go_beside_the_archive_or_to_a_named_file(store, tmp_path):
    assert session(store).path == store.path.parent / "traces" / "reviews.jsonl"
    moved = tmp_path / "elsewhere"
    shutil.copytree(store.path.parent, moved)
    assert session(mt.open_store(moved / "store")).path == moved / "traces" / "reviews.jsonl"
    with pytest.raises(UsageError, match="--reviews FILE"):
        session(store, tmp_path / "none" / "reviews.jsonl")


def test_a_last_line_without_its_end_is_completed_before_the_next(path):
    row = answers.Answer("a", 1, "c2s", "tool", "ann", answers.now())
    answers.append(path, [row])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    answers.append(path, [row])
    assert len(path.read_bytes().splitlines()) == 2
