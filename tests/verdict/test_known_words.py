"""Error texts of runtimes and libraries of many languages get the right verdict by text alone."""

import tomllib
from pathlib import Path

import polars as pl

from mcptally.verdict import judge

WORDS = tomllib.loads(Path(__file__).with_name("known_words.toml").read_text(encoding="utf-8"))


def test_known_error_texts_get_their_verdict():
    expected = [(verdict, text) for verdict, texts in WORDS.items() for text in texts]
    calls = pl.DataFrame([{"outcome": "tool_error", "error_text": text} for _, text in expected])
    wrong = [
        (verdict, actual, text)
        for (verdict, text), actual in zip(expected, judge(calls)["verdict"], strict=True)
        if actual != verdict
    ]
    assert wrong == []
