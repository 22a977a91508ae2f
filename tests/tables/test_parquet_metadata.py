from pathlib import Path

import pyarrow.parquet as pq
import pytest

import mcptally as mt
from mcptally.tables.all_tables import TABLES
from tests.transcripts import c2s, call, opened, s2c, text, write

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("metadata")
    traffic = write(folder / "a.jsonl", [opened(), c2s(1, call(1)), s2c(2, text(1))])
    mt.score([traffic], out=folder / "store")
    return folder / "store"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_parquet_file_states_the_meaning_and_unit_of_its_columns(store: Path, table):
    files = [*(store / table.name).glob("*.parquet")]
    assert files
    for file in files:
        said = {field.name: field.metadata for field in pq.read_schema(file)}
        assert said == {
            name: {b"meaning": column.meaning.encode()}
            | ({b"unit": column.unit.encode()} if column.unit else {})
            for name, column in table.columns().items()
        }
