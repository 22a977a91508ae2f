"""Tests of `statistics.arrow_values`: the same arrays as pyarrow's own conversions."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from mcptally.statistics import arrow_values as arrow


def test_null_becomes_nan_and_back():
    column = pa.chunked_array([pa.array([1.5, None], pa.float64()), pa.array([3.0, None, 5.0])])

    found = arrow.numbers(column)

    np.testing.assert_array_equal(found, [1.5, np.nan, 3.0, np.nan, 5.0])
    assert arrow.array(found).equals(column.combine_chunks())


@pytest.mark.parametrize("kind", [pa.float64(), pa.int64(), pa.uint64(), pa.int32()], ids=str)
def test_a_slice_has_the_values_of_the_slice(kind):
    whole = pa.array([7, None, 9, 10], kind).slice(2)

    assert arrow.values(whole).tolist() == [9, 10]


def test_lists_of_a_slice_keep_their_values():
    lists = pa.array([[1.0], [2.0, None], [], [3.0]], pa.list_(pa.float64())).slice(1)

    found = arrow.number_lists(pa.chunked_array([lists]))

    assert [len(each) for each in found] == [2, 0, 1]
    np.testing.assert_array_equal(found[0], [2.0, np.nan])


def test_lists_and_structs_equal_those_of_pyarrow():
    rows = [[1.0, None], [], [2.0]]
    assert arrow.list_array(rows).equals(pa.array(rows, pa.list_(pa.float64())))

    structs = [[(2**63, -1, True)], [], [(1, 5, False), (2, 6, True)]]
    kinds = {"hash": np.uint64, "fact": np.int64, "absent": np.bool_}
    named = [[dict(zip(kinds, each, strict=True)) for each in row] for row in structs]
    fields = pa.struct([("hash", pa.uint64()), ("fact", pa.int64()), ("absent", pa.bool_())])
    assert arrow.struct_list_array(structs, kinds).equals(pa.array(named, pa.list_(fields)))
    empty = arrow.struct_list_array([[]], kinds)
    assert empty.equals(pa.array([[]], pa.list_(fields)))


@pytest.mark.slow
def test_intervals_do_not_import_pandas():
    code = """
import sys
import duckdb
from mcptally.statistics import sql_functions
connection = duckdb.connect()
sql_functions.register(connection)
sql = '''SELECT t_quantile(0.975, 5), latency_quantiles([[1.0, 2.0], [3.0]], [1, 2]::UBIGINT[]),
    rate_change([1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [3.0, 4.0])'''
assert connection.execute(sql).fetchone()[0] > 2
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
