"""Estimates how many tokens texts have."""

from typing import Final

import polars as pl

BYTES_PER_TOKEN: Final = 4
"""Number of UTF-8 bytes that are counted as one token."""


def count_tokens(texts: pl.Series) -> pl.Series:
    """Estimate the number of tokens of each text; null for a null text."""
    return texts.str.len_bytes().cast(pl.Int64) // BYTES_PER_TOKEN
