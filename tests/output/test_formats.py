"""Row formats, for answers and exports that are hard to write."""

import io
import json

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mcptally as mt
from mcptally.output.export import export
from mcptally.output.formats import ROWS, csv
from mcptally.output.formats.writers import WRITERS
from tests.analytics.built_stores import build, call
from tests.commands import run

pytestmark = pytest.mark.slow

DUCKDB_LINE = 2_097_152
"""The default of `max_line_size` of DuckDB's `read_csv`, in bytes."""


def written(form: str, table: pa.Table) -> tuple[bytes, list[str]]:
    file = io.BytesIO()
    notes = WRITERS[form](iter(table.to_batches()), table.schema, file).notes
    return file.getvalue(), notes


LONG = {
    "one text": {"a": "x" * 3_000_000, "b": "y"},
    "quotes, which CSV doubles": {"a": '"' * 1_500_000, "b": "y"},
    "several bytes per character": {"a": "\N{SNOWMAN}" * 800_000, "b": "y"},
    "two texts that are short enough alone": {"a": "x" * 1_500_000, "b": "y" * 1_500_000},
    "a list": {"a": ["x" * 3_000_000], "b": "y"},
}


@pytest.mark.parametrize("row", LONG.values(), ids=LONG)
def test_duckdb_reads_a_csv_with_long_texts_by_its_defaults(tmp_path, row):
    rows = [{"a": type(row["a"])(), "b": "before"}, row, {"a": type(row["a"])(), "b": "after"}]
    data, notes = written("csv", pa.Table.from_pylist(rows))
    (tmp_path / "x.csv").write_bytes(data)
    found = duckdb.sql(f"SELECT a, b FROM '{tmp_path}/x.csv'").fetchall()
    assert [b[:6] for _, b in found] == ["before", row["b"][:6], "after"]
    assert "[cut: " in found[1][0]
    assert max(map(len, data.split(b"\n"))) > 1_900_000
    [note] = notes
    assert note.startswith("1 row with texts cut, because readers of CSV refuse lines above 2 MB")


def test_no_text_is_cut_in_a_line_of_two_million_bytes():
    fits = "x" * (csv.LINE - len('"",\n"y"'))
    data, notes = written("csv", pa.table({"a": [fits], "b": ["y"]}))
    assert (data, notes) == (f'"a","b"\n"{fits}","y"\n'.encode(), [])
    data, notes = written("csv", pa.table({"a": [fits + "x"], "b": ["y"]}))
    assert (b"[cut: " in data, len(notes)) == (True, 1)
    assert len(data) <= csv.LINE + len('"a","b"\n') < DUCKDB_LINE


def test_query_and_export_report_what_csv_cannot_hold_and_parquet_holds_it(tmp_path):
    arguments = json.dumps({"text": "x" * 2_100_000})
    build(tmp_path / "s", [call(1, arguments=arguments), call(2)])
    exported = run("export", tmp_path / "s", "--to", "csv", "-o", tmp_path / "x.csv")
    assert "mcptally: 1 row with texts cut" in exported.stderr
    assert exported.stderr.splitlines()[-1] == f"2 rows: {tmp_path}/x.csv"
    asked = run("query", tmp_path / "s", "SELECT arguments FROM calls", "--format", "csv")
    assert asked.stderr.startswith("1 row with texts cut")
    done = export(tmp_path / "s", to="parquet", out=tmp_path / "x.parquet")
    assert not done.notes
    assert arguments in pq.read_table(tmp_path / "x.parquet")["arguments"].to_pylist()


@pytest.mark.parametrize("form", ROWS)
def test_query_and_export_write_the_same_rows_in_every_format(tmp_path, form):
    build(tmp_path / "s", [call(1, error_text="=1\r\n2", arguments='{"a":[1]}'), call(2, "u")])
    query = "SELECT * FROM calls ORDER BY recording, seq, index, dir"
    answer = mt.open_store(tmp_path / "s", masked=True).sql(query).to_arrow_table()
    data, _ = written(form, answer)
    export(tmp_path / "s", to=form, out=tmp_path / "x")
    if form == "parquet":
        tables = [pq.read_table(io.BytesIO(b)) for b in (data, (tmp_path / "x").read_bytes())]
        assert tables[0].to_pylist() == tables[1].to_pylist()
    else:
        assert (tmp_path / "x").read_text().count("\n") == data.count(b"\n")


def test_an_answer_without_rows_is_valid_in_every_format():
    table = pa.table({"a": pa.array([], pa.string())})
    found = {form: written(form, table)[0] for form in ROWS if form != "parquet"}
    assert found == {
        "json": b"[]\n",
        "jsonl": b"",
        "csv": b'"a"\n',
        "markdown": b"| a |\n| --- |\n",
    }
