import pyarrow.parquet as pq
import pytest

import mcptally as mt
from mcptally.tables.all_tables import TABLES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_parquet_file_states_the_meaning_and_unit_of_its_columns(
    small_store: mt.Store, table
):
    files = [*(small_store.path / table.name).glob("*.parquet")]
    assert files
    for file in files:
        said = {field.name: field.metadata for field in pq.read_schema(file)}
        assert said == {
            name: {b"meaning": column.meaning.encode()}
            | ({b"unit": column.unit.encode()} if column.unit else {})
            for name, column in table.columns().items()
        }
