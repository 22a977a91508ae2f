"""Estimates the tokens of texts."""

from typing import Final

import polars as pl

BYTES_PER_TOKEN: Final = 4
"""Bytes of UTF-8 that count as a token."""


def count_tokens(texts: pl.Series) -> pl.Series:
    """Return the estimated number of tokens of each text; null for a null text."""
    return texts.str.len_bytes().cast(pl.Int64) // BYTES_PER_TOKEN
