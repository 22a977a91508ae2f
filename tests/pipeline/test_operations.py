"""Counts the operations for scoring a small partition, which do not vary between runs.

A query on a small frame takes 0.02 to 0.2 ms whatever it does, and compiling a pattern up to 17 ms.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

import mcptally as mt
from mcptally.toml_files import read_toml
from mcptally.verdict import error_template
from tests.corpus import SAMPLES

MOST: Final = 426
"""The limits. Lower a limit after a change that needs fewer operations."""


@pytest.mark.slow
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


REPEATED_WORD: Final = re.compile(r"(?:\\w|\[[^\]^]*\\w[^\]]*\])\{\d*,?(\d+)\}")
"""A bounded repetition of the Unicode class `\\w`, alone or in a class: each copy has a thousand
ranges, so that compiling sixty of them takes 17 ms."""


@pytest.mark.parametrize("file", ["definitions.toml", "definitions-smells.toml", "leaks.toml"])
def test_patterns_that_polars_runs_do_not_repeat_the_class_of_word_characters(file: str) -> None:
    table = read_toml(f"rules/{file}")
    patterns = [pattern for rule in table["rule"] for pattern in rule.get("matches", ())]
    assert not [pattern for pattern in patterns if _repeats(pattern)]


def test_patterns_of_templates_do_not_repeat_the_class_of_word_characters() -> None:
    patterns = [value for value in vars(error_template).values() if isinstance(value, str)]
    assert len(patterns) > 10
    assert not [pattern for pattern in patterns if _repeats(pattern)]


def _repeats(pattern: str) -> bool:
    return any(int(times) > 8 for times in REPEATED_WORD.findall(pattern))
