"""The archives that were ranked by hand; the benchmark `ranking` publishes their numbers."""

import pytest

import mcptally as mt
from mcptally.output.html.answers import Asked
from tests.benchmarks import ranking
from tests.shared_folder import shared_folder

OWN = [a for a in ranking.archives() if not any("traffic/" in name for name in a["recordings"])]
SOME = OWN[::5]
"""The archives that are scored here; the benchmark scores all."""


def test_every_recording_of_a_ranked_archive_exists():
    for archive in OWN:
        recordings = ranking.paths(archive)
        assert recordings
        assert all(path.exists() for path in recordings)


def test_a_ranked_problem_names_what_it_is_and_whose_fault():
    for archive in ranking.archives():
        for problem in archive["problem"]:
            assert problem.keys() & {"text", "kind", "outcome"}, problem
            assert problem["fault"], problem


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """The answers of each archive's store, and its problems in order."""

    def make(folder):
        for number, archive in enumerate(SOME):
            mt.score(ranking.paths(archive), out=folder / f"{number}", jobs=1)

    folder = shared_folder(tmp_path_factory, "ranked", make)
    found = [Asked(mt.open_store(folder / f"{number}")) for number in range(len(SOME))]
    return [(asked, ranking.ranked(asked)) for asked in found]


@pytest.mark.slow
def test_important_problems_are_among_the_first_ten_and_are_not_repeated(answers):
    total = ranking.Counter()
    for (asked, rows), archive in zip(answers, SOME, strict=True):
        total += ranking.measure(asked.store, rows, archive["problem"])[0]
    assert total["found"] >= 0.85 * total["important"], ranking.shares(total)
    assert total["ranked"] >= 0.9 * total["first five"], ranking.shares(total)
    assert total["repeats"] <= 3, ranking.shares(total)
    assert total["fault right"] >= 0.93 * total["with a problem"], ranking.shares(total)


@pytest.mark.slow
def test_every_row_agrees_with_the_screen_and_with_show_of_its_example(answers):
    for asked, rows in answers:
        assert ranking.disagreements(asked, rows) == [], asked.store.path
