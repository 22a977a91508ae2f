"""Files of tables are written in the order of the table's key."""

import random
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mcptally.store.parts import ROW_GROUP, copy_part, write_part
from mcptally.tables.calls import Calls
from mcptally.tables.findings import Findings
from mcptally.tables.recordings import Recordings


def test_a_part_is_sorted_by_the_key_of_its_table(tmp_path: Path):
    names = [f"{number:06}" for number in range(ROW_GROUP + 10)]
    for part, given in (("reversed", names[::-1]), ("sorted", names)):
        write_part(tmp_path, Recordings, part, pl.DataFrame({"recording": given}))
        written = pl.read_parquet(tmp_path / Recordings.name / f"{part}.parquet")
        assert written.get_column("recording").to_list() == names
    write_part(
        tmp_path, Findings, "ties", pl.DataFrame({"seq": [2, 1, 1], "evidence": [*"abc"[::-1]]})
    )
    written = pl.read_parquet(tmp_path / Findings.name / "ties.parquet")
    assert written.get_column("evidence").to_list() == ["a", "b", "c"]


def test_texts_in_lists_are_written_once(tmp_path: Path):
    evidence = [["Tool responded successfully with content"]] * ROW_GROUP
    frame = pl.DataFrame({"call_id": [f"{n}" for n in range(ROW_GROUP)], "evidence": evidence})
    write_part(tmp_path, Calls, "part", frame)
    path = tmp_path / Calls.name / "part.parquet"
    group = pq.read_metadata(path).row_group(0)
    columns = (group.column(number) for number in range(group.num_columns))
    [column] = (column for column in columns if column.path_in_schema == "evidence.list.element")
    assert column.total_uncompressed_size < ROW_GROUP
    assert pl.read_parquet(path, columns=["evidence"]).equals(frame[["evidence"]])


def test_lists_without_elements_are_written_if_polars_leaves_offsets_in_them(tmp_path: Path):
    calls = pl.DataFrame({"call_id": ["a", "b"], "evidence": [["x" * 20] * 5, []]})
    frame = calls[1:].with_columns(pl.col("evidence").list.drop_nulls())
    with pytest.raises(pa.ArrowInvalid):
        frame.to_arrow(compat_level=pl.CompatLevel.newest())
    write_part(tmp_path, Calls, "part", frame)
    written = pl.read_parquet(tmp_path / Calls.name / "part.parquet")
    assert written.get_column("evidence").to_list() == [[]]


@pytest.mark.slow
def test_a_part_with_long_texts_is_copied_in_row_groups_of_limited_size(tmp_path: Path):
    chance = random.Random(1)
    texts = [chance.randbytes(200_000).hex() for _ in range(120)]  # 48 MB
    calls = pl.DataFrame({"call_id": [f"{n:03}" for n in range(120)], "response": texts})
    write_part(tmp_path, Calls, "whole", calls)
    source, target = (tmp_path / Calls.name / f"{name}.parquet" for name in ("whole", "copy"))
    copy_part(source, target, lambda rows: rows.filter(pl.col("call_id") != "007"))
    copied = pq.read_metadata(target)
    assert copied.num_row_groups > 1
    for number in range(copied.num_row_groups):
        assert copied.row_group(number).total_byte_size < 40 << 20
    kept = pl.read_parquet(source).filter(pl.col("call_id") != "007")
    assert pl.read_parquet(target).equals(kept)
