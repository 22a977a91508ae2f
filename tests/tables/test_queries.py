"""A query with several operations gives the same result as the operations one by one."""

import polars as pl

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
