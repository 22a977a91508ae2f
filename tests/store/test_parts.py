"""Files of tables are written in the order of the table's key."""

from pathlib import Path

import polars as pl

from mcptally.store.parts import ROW_GROUP, write_part
from mcptally.tables.recordings import Recordings


def test_a_part_is_sorted_by_the_key_of_its_table(tmp_path: Path):
    names = [f"{number:06}" for number in range(ROW_GROUP + 10)]
    for part, given in (("reversed", names[::-1]), ("sorted", names)):
        write_part(tmp_path, Recordings, part, pl.DataFrame({"recording": given}))
        written = pl.read_parquet(tmp_path / Recordings.name / f"{part}.parquet")
        assert written.get_column("recording").to_list() == names
