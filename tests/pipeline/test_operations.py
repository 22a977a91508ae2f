"""The number of polars queries that scoring a partition takes: it does not vary between runs.

A query on a small frame takes 0.05 to 0.2 ms whatever it does, so their number is most of what a
small partition costs.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

import mcptally as mt
from tests.corpus import SAMPLES

MOST: Final = 1_400
"""Lower it after a change that needs fewer."""


def test_scoring_a_small_archive_takes_a_known_number_of_polars_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    for name in ("collect", "_collect_eager"):  # lazy queries, and each eager operation
        query = getattr(pl.LazyFrame, name)

        def counted(frame: Any, *args: Any, of: str = name, run: Any = query, **named: Any) -> Any:
            counts[of] += 1
            return run(frame, *args, **named)

        monkeypatch.setattr(pl.LazyFrame, name, counted)
    mt.score(SAMPLES / "everything.jsonl.zst", out=tmp_path / "store")
    assert 100 < counts.total() <= MOST
