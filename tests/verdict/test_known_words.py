"""What runtimes and libraries of many languages say, without anything that surrounds the call."""

import tomllib
from pathlib import Path

import polars as pl

from mcptally.verdict import judge

WORDS = tomllib.loads(Path(__file__).with_name("known_words.toml").read_text(encoding="utf-8"))


def test_leaked_crashes_refusals_and_outages_are_told_apart_by_their_words():
    said = [(verdict, text) for verdict, texts in WORDS.items() for text in texts]
    calls = pl.DataFrame([{"outcome": "tool_error", "error_text": text} for _, text in said])
    wrong = [
        (verdict, got, text)
        for (verdict, text), got in zip(said, judge(calls)["verdict"], strict=True)
        if got != verdict
    ]
    assert wrong == []
