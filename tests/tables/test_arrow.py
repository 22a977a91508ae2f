import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from mcptally.tables.arrow import indices, series_from_numpy


@pytest.mark.parametrize(
    "values",
    [
        np.array([3, -1, 2]),
        np.array([3, 1], dtype=np.uint8),
        np.array([0.5, float("nan")]),
        np.array([*[True, False, False] * 3]),
        np.array([], dtype=np.uint32),
        np.arange(10)[::3],
    ],
)
def test_a_series_from_numpy_has_the_values_and_type_that_polars_gives(
    values: npt.NDArray[np.generic],
) -> None:
    made = series_from_numpy(values, "values")
    assert made.equals(pl.Series("values", values), check_dtypes=True, check_names=True)


def test_a_series_from_numpy_keeps_its_values_when_the_array_changes() -> None:
    values = np.array([1, 2])
    made = series_from_numpy(values)
    values[0] = 9
    assert made.to_list() == [1, 2]


def test_indices_have_the_type_that_polars_indexes_with() -> None:
    assert indices(np.array([2, 0])).dtype == pl.get_index_type()
