"""Calls to scored calls: hidden errors, the verdict, and the seed score in both readings."""

import polars as pl

from mcptally.seed import columns as seed
from mcptally.verdict import hidden, judge


def score_calls(calls: pl.DataFrame, definitions: pl.DataFrame) -> pl.DataFrame:
    """`calls` (paired and validated) with `outcome` final and every score beside it.

    `definitions` has `definition` and `output_schema` of the tools.
    """
    calls = _with_hidden(calls)
    calls = pl.concat([calls, judge(calls)], how="horizontal")
    calls = calls.with_columns(
        pl.when(pl.col("outcome") == "hidden_error")
        .then(pl.min_horizontal("confidence", "hidden_confidence"))
        .otherwise(pl.col("confidence"))
        .alias("confidence"),
        response_tokens=pl.col("response").str.len_bytes().cast(pl.Int64) // 4,
    )
    return seed.score(calls, definitions)


def _with_hidden(calls: pl.DataFrame) -> pl.DataFrame:
    """Results that report a failure without saying so become `hidden_error`."""
    found = hidden(
        calls.with_columns(
            structured="structured_content", texts_count=pl.col("text_blocks")
        ).with_columns(
            # Only results of tools can hide an error.
            text=pl.when((pl.col("outcome") == "ok") & pl.col("tool").is_not_null()).then("text"),
            structured=pl.when((pl.col("outcome") == "ok") & pl.col("tool").is_not_null()).then(
                "structured"
            ),
        )
    )
    calls = pl.concat([calls, found], how="horizontal")
    is_hidden = (pl.col("outcome") == "ok") & pl.col("hidden_error").fill_null(value=False)
    return calls.with_columns(
        outcome=pl.when(is_hidden).then(pl.lit("hidden_error")).otherwise(pl.col("outcome")),
        error_text=pl.when(is_hidden).then(pl.col("hidden_text")).otherwise(pl.col("error_text")),
    ).drop("hidden_error", "hidden_text")
