"""Functions whose polars queries run on the calling thread."""

import threading
from pathlib import Path

import polars as pl
import pytest

import mcptally as mt
from mcptally.calling_thread import on_calling_thread
from tests import corpus


def threads_of_a_query() -> set[int]:
    """The threads on which polars computes the two columns of a query."""
    found = set()

    def seen(values: pl.Series) -> pl.Series:
        found.add(threading.get_ident())
        return values

    pl.DataFrame({"a": [1], "b": [2]}).select(pl.col("a", "b").map_batches(seen))
    return found


decorated = on_calling_thread(threads_of_a_query)


@on_calling_thread
def failing(error: BaseException) -> None:
    assert pl.DataFrame({"a": [1, 2]}).filter(pl.col("a") > 1).height == 1
    raise error


def test_queries_run_on_the_calling_thread_only_within_a_decorated_function() -> None:
    here = threading.get_ident()
    assert threads_of_a_query() != {here}
    assert decorated() == {here}
    assert on_calling_thread(decorated)() == {here}
    assert threads_of_a_query() != {here}


def test_each_thread_runs_its_own_queries() -> None:
    found: list[set[int]] = []
    other = threading.Thread(target=lambda: found.append(decorated()))
    other.start()
    other.join()
    assert found == [{other.ident}]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_an_error_reaches_the_caller_unchanged(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        failing(error)
    assert caught.value is error
    assert Path(caught.traceback[-1].path) == Path(__file__)


def test_a_run_scores_on_the_calling_thread(tmp_path: Path) -> None:
    found: list[set[int]] = []
    mt.score(
        corpus.SAMPLES / "commands.jsonl.zst",
        out=tmp_path / "store",
        progress=lambda *_: found.append(threads_of_a_query()),
    )
    assert found
    assert all(each == {threading.get_ident()} for each in found)
