from pathlib import Path

import polars as pl
import pytest

from mcptally.process_memory import mapped_files
from mcptally.tables.mapped_tables import MappedTables


@pytest.fixture
def mapped(tmp_path: Path) -> MappedTables:
    mapped = MappedTables(tmp_path / "folder")
    mapped.is_large = True
    return mapped


def bytes_in_files() -> int:
    """Return the total size of the files that tables use."""
    return sum(map(len, mapped_files()))


def rows(first: int) -> pl.DataFrame:
    """Return rows of all types of columns, with texts of more and of fewer than 12 bytes."""
    numbers = range(first, first + 1000)
    return pl.DataFrame(
        {
            "text": [None if n % 7 == 0 else f"text {n} " * (n % 5) for n in numbers],
            "number": [None if n % 3 == 0 else n for n in numbers],
            "row": pl.Series(numbers, dtype=pl.UInt32),
            "share": [n / 7 for n in numbers],
            "flag": [None if n % 11 == 0 else n % 2 == 0 for n in numbers],
            "types": [["text"] * (n % 3) for n in numbers],
            "absent": pl.Series([None], dtype=pl.String).new_from_index(0, len(numbers)),
        }
    )


def test_moved_tables_have_the_same_rows(mapped: MappedTables):
    chunks = pl.concat([rows(0), rows(5000)])
    tables = [chunks, chunks[13:1777], chunks.filter(pl.col("row") % 2 == 0), rows(0).clear()]
    moved = mapped.move(tables)
    assert bytes_in_files() > 0
    for before, after in zip(tables, moved, strict=True):
        assert after.equals(before)
        assert after.schema == before.schema
    again = mapped.move([moved[0].with_columns(pl.col("text").str.to_uppercase().alias("upper"))])
    assert again[0].drop("upper").equals(chunks)


def test_nothing_moves_until_the_recording_is_large(tmp_path: Path):
    table = rows(0)
    assert MappedTables(tmp_path / "folder").move([table])[0] is table
    assert not (tmp_path / "folder").exists()


def test_each_text_is_written_once(mapped: MappedTables):
    long = pl.Series("text", [f"{n} " * 5000 for n in range(10)])
    [moved] = mapped.move(
        [pl.DataFrame({"text": long, "same": long, "head": long.gather([1] * 10)})]
    )
    once = bytes_in_files()
    assert once < 1.1 * long.str.len_bytes().sum()
    [again] = mapped.move([moved.with_columns(pl.col("text").alias("other"), number=1)])
    assert bytes_in_files() < once + 1000
    assert again.get_column("other").equals(long)


def test_a_file_has_no_name_and_ends_with_its_last_column(mapped: MappedTables):
    [moved] = mapped.move([rows(0)])
    assert not list(mapped.folder.iterdir())
    texts = moved.get_column("text")
    del moved
    assert bytes_in_files() > 0
    assert texts.equals(rows(0).get_column("text"))
    del texts
    assert bytes_in_files() == 0
