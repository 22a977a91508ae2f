"""SQL reads a store and nothing else, whoever wrote it."""

from pathlib import Path

import duckdb
import pytest

import mcptally as mt
from mcptally.errors import QueryError
from tests.transcripts import c2s, call, opened, s2c, text, write


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> mt.Store:
    """A small store with things beside it that are nobody's business."""
    folder = tmp_path_factory.mktemp("sql")
    events = [opened(), c2s(1, call(1, "read")), s2c(2, text(1, "fine"))]
    write(folder / "traces.jsonl", events)
    mt.score([folder / "traces.jsonl"], out=folder / "store")
    (folder / "secret.csv").write_text("word\nxyzzy\n")
    return mt.open_store(folder / "store")


READS = {
    "a file": "SELECT * FROM read_csv('{folder}/secret.csv')",
    "a file by its name": "SELECT * FROM '{folder}/secret.csv'",
    "a file through the store": "SELECT * FROM read_csv('{folder}/store/calls/../../secret.csv')",
    "a file as text": "SELECT * FROM read_text('{folder}/secret.csv')",
    "a file as bytes": "SELECT * FROM read_blob('{folder}/secret.csv')",
    "the names of files": "SELECT * FROM glob('{folder}/*')",
    "what a file looks like": "SELECT * FROM sniff_csv('{folder}/secret.csv')",
    "the store's own manifest": "SELECT * FROM read_text('{folder}/store/store.json')",
    "the network": "SELECT * FROM read_csv('http://127.0.0.1:9/x.csv')",
    "Python's variables": "SELECT * FROM secret",
    "another database": "SELECT * FROM read_duckdb('{folder}/other.duckdb')",
    "SQL in SQL": "SELECT * FROM query('SELECT * FROM read_text(''{folder}/secret.csv'')')",
    "SQL as JSON": (
        "SELECT * FROM json_execute_serialized_sql(json_serialize_sql("
        "'SELECT * FROM read_text(''{folder}/secret.csv'')'))"
    ),
    "kept secrets": "SELECT * FROM which_secret('s3://x', 's3')",
}
WRITES = {
    "a file": "COPY (SELECT 1) TO '{folder}/out.csv'",
    "a file in the store": "COPY (SELECT 1) TO '{folder}/store/calls/out.csv'",
    "a file, explained": "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/store/calls/out.csv'",
    "a file, after a SELECT": "SELECT 1; COPY (SELECT 1) TO '{folder}/store/calls/out.csv'",
    "a file, in a comment's lee": "/* SELECT */ COPY (SELECT 1) TO '{folder}/store/calls/out.csv'",
    "a database": "ATTACH '{folder}/store/calls/other.duckdb' AS other",
    "all there is": "EXPORT DATABASE '{folder}/store/calls/export'",
    "a view": "CREATE OR REPLACE VIEW calls AS SELECT 1",
    "a view's end": "DROP VIEW calls",
    "a row": "INSERT INTO calls VALUES (1)",
    "a row within": "WITH x AS (INSERT INTO calls VALUES (1) RETURNING *) SELECT * FROM x",
    "a macro": "CREATE MACRO f() AS 1",
    "a setting": "SET enable_external_access = true",
    "a setting's default": "RESET lock_configuration",
    "a pragma": "PRAGMA enable_profiling",
    "an extension": "INSTALL httpfs",
    "an extension at once": "LOAD httpfs",
    "a log": "CALL enable_logging(storage = 'file', storage_path = '{folder}/log')",
    "a log by SELECT": "SELECT * FROM enable_logging(storage_path = '{folder}/log')",
    "a prepared statement": "PREPARE p AS SELECT 1",
    "a variable": "SET VARIABLE server = 'x'",
    "nothing": "",
    "a comment": "-- SELECT 1",
}


@pytest.mark.parametrize("attack", READS.values(), ids=READS)
def test_sql_reads_the_store_and_nothing_else(small: mt.Store, attack: str):
    # Some are refused when they are read, some not before they run.
    with pytest.raises((QueryError, duckdb.Error)) as refused:
        small.sql(attack.format(folder=small.path.parent)).fetchall()
    assert "xyzzy" not in str(refused.value)


@pytest.mark.parametrize("attack", WRITES.values(), ids=WRITES)
def test_sql_changes_nothing(small: mt.Store, attack: str):
    before = files(small.path.parent)
    with pytest.raises(QueryError):
        small.sql(attack.format(folder=small.path.parent)).fetchall()
    assert files(small.path.parent) == before
    assert small.sql("SELECT tool FROM calls").fetchall() == [("read",)]


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT tool FROM calls",
        "FROM calls SELECT tool;",
        "WITH x AS (SELECT tool FROM calls) SELECT * FROM x",
        "-- which?\nSELECT tool FROM calls -- this",
        "SELECT tool FROM tool_scores",
    ],
)
def test_a_select_in_any_form_is_answered(small: mt.Store, query: str):
    assert small.sql(query).fetchall() == [("read",)]


@pytest.mark.parametrize("query", ["DESCRIBE calls", "SHOW TABLES", "EXPLAIN SELECT * FROM calls"])
def test_what_only_describes_is_answered(small: mt.Store, query: str):
    assert small.sql(query).fetchall()


def test_values_are_bound(small: mt.Store):
    query = "SELECT count(*) FROM calls WHERE tool = ?"
    assert small.sql(query, params=["read"]).fetchall() == [(1,)]
    assert small.sql(query, params=["' OR true --"]).fetchall() == [(0,)]
