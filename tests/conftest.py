"""Settings of property tests: the same examples in each run, and no time limit.

A busy machine must not cause a failure, and random examples must not make a change fail by chance.
With `-m "not slow"`, each test tries 10 examples, otherwise 25. `HYPOTHESIS_PROFILE=explore` tries
new examples instead.
"""

import atexit
import gc
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

# Workers and commands that tests start reuse compiled modules: compiling takes longer than a test.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
import mcptally as mt
from tests import corpus
from tests.shared_folder import shared_folder
from tests.transcripts import c2s, call, opened, s2c, text, write

settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("steady"), max_examples=10)
settings.register_profile(
    "explore",
    deadline=None,
    max_examples=1000,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)


SLOW_MODULE: Final = re.compile(rb"^pytestmark = .*\bpytest\.mark\.slow\b", re.MULTILINE)
"""Matches the marker that makes all tests of a module slow."""


def _is_fast_tier(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "not slow")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the profile and Polars' number of threads before test modules need them."""
    usual = "quick" if _is_fast_tier(config) else "steady"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", usual))

    # Polars loads with one thread, as in a command (memory.settle): several take more CPU time.
    # tests/pipeline/test_threads.py has several, as a user's script does.
    os.environ["POLARS_MAX_THREADS"] = "1"
    import polars  # noqa: F401

    os.environ.pop("POLARS_MAX_THREADS", None)


@pytest.fixture(scope="session")
def sample_store(tmp_path_factory: pytest.TempPathFactory) -> mt.Store:
    """A store of `sample_traces`, which no test changes; the workers of a run share it."""
    folder = shared_folder(
        tmp_path_factory, "samples", lambda new: mt.score(corpus.SAMPLES, out=new / "store")
    )
    return mt.open_store(folder / "store")


@pytest.fixture(scope="session")
def corpus_store(tmp_path_factory: pytest.TempPathFactory) -> mt.Store:
    """A store of a part of `corpus.recordings()`; no test changes it, and workers share it."""
    few = corpus.FOLDERS[:3]
    # The recording of `ucon` is one of two with a result that its output schema does not allow.
    files = [p for p in corpus.recordings() if p.parent in few or p.name == "ucon.jsonl.zst"]
    folder = shared_folder(
        tmp_path_factory, "corpus", lambda new: mt.score(files, out=new / "store")
    )
    return mt.open_store(folder / "store")


@pytest.fixture(scope="session")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> mt.Store:
    """A store of one call to `read`, recorded in `traces.jsonl` beside it; no test changes them."""

    def make(folder: Path) -> None:
        events = [opened(), c2s(1, call(1, "read")), s2c(2, text(1, "fine"))]
        mt.score([write(folder / "traces.jsonl", events)], out=folder / "store")

    return mt.open_store(shared_folder(tmp_path_factory, "small", make) / "store")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from visiting the collected tests and modules again and again.

    They stay until the end, and visiting them takes CPU time during the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """In the fast tests, do not import modules that only have slow tests."""
    if not _is_fast_tier(config) or collection_path.suffix != ".py":
        return None
    return bool(SLOW_MODULE.search(collection_path.read_bytes())) or None


@atexit.register
def _return_modules() -> None:
    """Return the modules to the garbage collector, and take Hypothesis's callback from it.

    The interpreter keeps frozen objects and the callback, and thereby the modules, until DuckDB's
    binding has counted its remaining objects: it would print that they leaked. pytest collects
    garbage twice before, which takes longer with the modules.
    """
    gc.unfreeze()
    ours = [each for each in gc.callbacks if not each.__module__.startswith("hypothesis")]
    gc.callbacks[:] = ours
