"""A query with several operations gives the same result as the operations one by one."""

import polars as pl

from mcptally.tables.joins import left_join_columns
from mcptally.tables.queries import run_query


def test_a_filter_behind_a_join_tests_joined_rows_only():
    tested: list[int] = []

    def is_positive(values: pl.Series) -> pl.Series:
        tested.append(len(values))
        return values > 0

    positive = pl.col("a").map_batches(is_positive, return_dtype=pl.Boolean, is_elementwise=True)
    rows = pl.LazyFrame({"a": [1, 2, 3, 4]})
    query = rows.join(pl.LazyFrame({"a": [3]}), on="a", how="semi").filter(positive)
    assert query.pipe(run_query)["a"].to_list() == [3]
    assert set(tested) == {1}


def test_joined_columns_follow_the_rows_and_null_keys_match_nothing():
    rows = pl.DataFrame({"key": ["b", "a", None]})
    for keys, expected in (
        (["b", "a", None], [1, 2, None]),
        (["a", "b", None], [2, 1, None]),
        (["b", "c"], [1, None, None]),
        ([], [None, None, None]),
    ):
        other = pl.DataFrame(
            {"key": keys, "value": range(1, len(keys) + 1)},
            schema={"key": pl.String, "value": pl.Int64},
        )
        assert left_join_columns(rows, other, "key").get_column("value").to_list() == expected
