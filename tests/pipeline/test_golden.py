"""The tables of the sample traces equal the reviewed golden files."""

import pytest

import mcptally as mt
from tests.pipeline import golden

NAMES = sorted(path.name for path in golden.TRACES.rglob("*.jsonl*"))


@pytest.fixture(scope="module")
def texts(sample_store: mt.Store) -> dict[str, str]:
    return golden.rendered(sample_store)


@pytest.mark.parametrize("name", NAMES)
def test_the_tables_of_a_sample_trace_equal_the_golden_file(texts: dict[str, str], name: str):
    kept = golden.FOLDER / f"{name}.txt"
    assert kept.exists(), "no golden file: python -m tests.pipeline.golden, then read it"
    assert texts[name] == kept.read_text(encoding="utf-8"), (
        "the tables changed; if that is meant: python -m tests.pipeline.golden, and read the diff"
    )
