"""Several stores opened together answer as one."""

from pathlib import Path

import pytest

import mcptally as mt
from mcptally.errors import StoreError
from tests import corpus
from tests.analytics import reference_answers
from tests.analytics.test_questions import NAMES, agree
from tests.transcripts import c2s, call, opened, s2c, text, write

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> mt.Store:
    """The traffic of `store` in two stores that share a third of it."""
    folder = tmp_path_factory.mktemp("parts")
    files = sorted(corpus.SAMPLES.glob("*.jsonl*"))
    for name, some in (("first", files[:8]), ("second", files[4:])):
        mt.score(some, out=folder / name)
    return mt.open_store(folder / "first", folder / "second")


# Costs of listings are summed over the stores, so sessions in both count twice. Findings about a
# server as a whole belong to the store that has them.
APART = {"context_cost", "unused_tools", "drift", "finding_counts"}


@pytest.mark.parametrize("name", sorted({*NAMES} - APART))
def test_stores_that_overlap_answer_as_one_store_of_everything(parts: mt.Store, rows, name):
    agree(name, parts.ask(name).pl().to_dicts(), list(getattr(reference_answers, name)(rows)))


def test_filters_apply_to_all_stores(parts: mt.Store, store: mt.Store):
    for name in ("git", "excel", "time"):
        whole = store.ask("latency", server=name).fetchall()
        assert parts.ask("latency", server=name).fetchall() == whole
    whole = store.ask("clients", server="git").pl()
    assert parts.ask("clients", server="git").pl().equals(whole)


def listed(folder: Path, name: str, seq: int, **definition) -> Path:
    tool = {"name": "read", "inputSchema": {"type": "object"}, **definition}
    events = [
        opened(name),
        c2s(seq, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, name),
        s2c(seq + 1, {"jsonrpc": "2.0", "id": 1, "result": {"tools": [tool]}}, name),
    ]
    trace = write(folder / f"{name}.jsonl", events)
    mt.score([trace], out=folder / name)
    return folder / name


def test_a_definition_that_changed_between_two_stores_is_drift(tmp_path: Path):
    strict = {"inputSchema": {"type": "object", "required": ["path"]}}
    stores = [
        listed(tmp_path, "monday", 1, icons=[]),
        listed(tmp_path, "tuesday", 5),
        listed(tmp_path, "wednesday", 9, **strict),
    ]
    found = mt.open_store(*stores).ask("drift").pl().select("drift", "changed").rows()
    assert sorted(found) == [("breaking", ["inputSchema/required/path: added"]), ("hints", [])]


def test_a_definition_that_several_stores_know_was_seen_from_the_first_to_the_last(tmp_path: Path):
    stores = [listed(tmp_path, "monday", 1), listed(tmp_path, "tuesday", 5)]
    about = "SELECT first_seen, last_seen, sessions, listings FROM tools"
    [first], [second] = (mt.open_store(each).sql(about).fetchall() for each in stores)
    for order in (stores, stores[::-1]):
        assert mt.open_store(*order).sql(about).fetchall() == [(first[0], second[1], 2, 2)]


def test_a_recording_that_two_stores_hold_is_as_the_first_has_it(tmp_path: Path):
    said = [opened(), c2s(1, call(1, "read")), s2c(2, text(1)), c2s(3, call(2, "write"))]
    for name, events in (("before", said[:3]), ("after", said)):
        mt.score([write(tmp_path / f"{name}.jsonl", events)], out=tmp_path / name)
    stores = [tmp_path / "before", tmp_path / "after"]
    about = "SELECT tool FROM calls ORDER BY seq"
    assert mt.open_store(*stores).sql(about).fetchall() == [("read",)]
    assert mt.open_store(*stores[::-1]).sql(about).fetchall() == [("read",), ("write",)]


def test_every_path_must_be_a_store(tmp_path: Path):
    good = listed(tmp_path, "monday", 1)
    with pytest.raises(StoreError, match="no such store"):
        mt.open_store(good, tmp_path / "none")


def test_a_comparison_reads_every_store_of_a_side(tmp_path: Path):
    for name in ("one", "two"):
        events = [opened(name, server=name), c2s(1, call(1, "read"), name), s2c(2, text(1), name)]
        mt.score([write(tmp_path / f"{name}.jsonl", events)], out=tmp_path / name)
    both = mt.open_store(tmp_path / "one", tmp_path / "two")
    second = mt.open_store(tmp_path / "two")
    changes = {
        (base, new): sorted(
            row[:2] for row in first.compare(other).tools.select("server", "change").fetchall()
        )
        for (base, first) in (("both", both), ("two", second))
        for (new, other) in (("both", both), ("two", second))
    }
    assert changes["both", "two"] != changes["two", "two"]
    assert ("one", "only_in_base") in changes["both", "two"]
    assert ("one", "only_in_new") in changes["two", "both"]
    assert {server for server, _ in changes["both", "both"]} == {"one", "two"}
