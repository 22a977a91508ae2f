"""Which answers count if people disagree, groups are mixed, or a program answers."""

import itertools

import pytest

from mcptally.review.answers import Answer, Reviewer, Reviews, Scope
from mcptally.review.settled import GroupKey, pairs, settle

CLOCK = itertools.count()


def said(seq, answer, who="ann", **fields):
    at = f"2026-11-24T00:00:00.{next(CLOCK):06d}+00:00"
    return Answer("r", seq, "c2s", answer, who, at, **fields)


def of(*rows):
    return settle(Reviews.of(rows))


def test_people_who_disagree_settle_nothing_until_they_agree():
    rows = [said(1, "tool"), said(1, "caller", "bob"), said(2, "tool")]
    found = of(*rows)
    assert [key.seq for key in found.calls] == [2]
    assert [each.answers for each in found.conflicts] == [{"ann": "tool", "bob": "caller"}]
    assert not of(*rows, said(1, "tool", "bob")).conflicts


def test_a_group_whose_calls_got_different_answers_is_split():
    everyone = said(1, "tool", group="g", definition="d", scope=Scope.GROUP)
    assert of(everyone).groups.keys() == {GroupKey("g", "d")}
    found = of(everyone, said(2, "caller", group="g"))
    assert not found.groups
    assert found.split == {"g"}
    assert len(found.calls) == 2


def test_cannot_tell_is_an_answer():
    assert of(said(1, "cannot_tell")).calls.keys()
    assert of(said(1, "cannot_tell"), said(1, "tool", "bob")).conflicts


def program(seq, answer):
    return said(seq, answer, "script", by=Reviewer.PROGRAM)


@pytest.mark.parametrize(
    ("common", "wrong", "counts"), [(19, 0, False), (20, 0, True), (20, 2, False), (40, 2, True)]
)
def test_answers_of_a_program_count_once_it_agrees_with_people(common, wrong, counts):
    rows = [said(seq, "caller") for seq in range(common)]
    rows += [program(seq, "tool" if seq < wrong else "caller") for seq in range(common)]
    found = of(*rows, program(99, "tool"))
    assert (99 in {key.seq for key in found.calls}) == counts
    assert ("script" in found.waiting) != counts
    assert found.calls.keys() >= {row.key for row in rows}, "answers of people always count"


def test_an_answer_of_a_program_never_overrules_a_person():
    rows = [said(seq, "caller") for seq in range(30)] + [
        program(seq, "tool" if seq == 3 else "caller") for seq in range(30)
    ]
    assert {row.answer for row in of(*rows).calls.values()} == {"caller"}


def test_agreement_is_measured_on_calls_that_both_answered():
    rows = [said(seq, "caller" if seq % 2 else "tool") for seq in range(10)]
    rows += [said(seq, "caller" if seq % 2 else "tool", "bob") for seq in range(5, 20)]
    (found,) = pairs(Reviews.of(rows))
    assert (found.first, found.second, found.agreement.n) == ("ann", "bob", 5)
    assert found.agreement.kappa == 1
