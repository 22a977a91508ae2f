"""The archives that were ranked by hand, of which the benchmark `ranking` publishes the numbers."""

import pytest

import mcptally as mt
from tests.benchmarks import ranking

OWN = [a for a in ranking.archives() if not any("traffic/" in name for name in a["recordings"])]


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


@pytest.mark.slow
def test_important_problems_are_among_the_first_ten_and_are_not_repeated(tmp_path):
    total = ranking.Counter()
    for number, archive in enumerate(OWN):
        store = tmp_path / f"{number}"
        mt.score(ranking.paths(archive), out=store, jobs=1)
        total += ranking.measure(mt.open_store(store), archive["problem"])[0]
    assert total["found"] >= 0.85 * total["important"], ranking.shares(total)
    assert total["ranked"] >= 0.9 * total["first five"], ranking.shares(total)
    assert total["repeats"] <= 3, ranking.shares(total)
    assert total["fault right"] >= 0.9 * total["with a problem"], ranking.shares(total)
