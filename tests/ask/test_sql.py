"""SQL reads a store and nothing else, whoever wrote it."""

import gc
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest

import mcptally as mt
from mcptally.errors import QueryError, StoreError, UsageError
from tests.transcripts import c2s, call, opened, s2c, text, write


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> mt.Store:
    """A small store with things beside it that are nobody's business."""
    folder = tmp_path_factory.mktemp("sql")
    events = [opened(), c2s(1, call(1, "read")), s2c(2, text(1, "fine"))]
    write(folder / "traces.jsonl", events)
    mt.score([folder / "traces.jsonl"], out=folder / "store")
    (folder / "secret.csv").write_text("word\nxyzzy\n")
    with duckdb.connect(str(folder / "other.duckdb")) as other:
        other.execute(f"CREATE TABLE t AS FROM '{folder}/secret.csv'")
        other.execute(f"COPY t TO '{folder}/x.parquet'")
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
    "an environment variable": "SELECT getenv('HOME')",
    "a file that JSON is read from": "SELECT * FROM read_json('{folder}/secret.csv')",
    "objects of a file": "SELECT * FROM read_ndjson_objects('{folder}/secret.csv')",
    "a Parquet file elsewhere": "SELECT * FROM parquet_metadata('{folder}/x.parquet')",
    "a table of an extension": "SELECT * FROM sqlite_scan('{folder}/x.db', 't')",
    "memory of the process": "SELECT * FROM pandas_scan(140000)",
    "memory of the process, by pointer": "SELECT * FROM arrow_scan(1::POINTER, 1, 1)",
    "an object store": "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
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
    "an extension from elsewhere": "INSTALL httpfs FROM 'http://127.0.0.1:9'",
    "a resource": "SELECT * FROM create_external_resource('x')",
    "a secret": "CREATE SECRET s (TYPE s3, KEY_ID 'x', SECRET 'y')",
    "a folder": "COPY calls TO '{folder}/store/calls' (FORMAT parquet, PARTITION_BY (tool))",
    "a database, read only": "ATTACH '{folder}/other.duckdb' (READ_ONLY)",
    "a checkpoint": "CHECKPOINT",
    "a checkpoint by SELECT": "SELECT * FROM checkpoint()",
    "SQL in a text": "SELECT * FROM \"Query\" /* ( */ ('SELECT 1')",
    "a resource's kind": "SELECT * FROM register_external_resource_type ('x', kind := 'y')",
    "the memory limit": "SET memory_limit = '1TB'",
    "a function in Python": "CREATE FUNCTION f(x) AS x",
    "a prepared statement": "PREPARE p AS SELECT 1",
    "a variable": "SET VARIABLE server = 'x'",
    "nothing": "",
    "a comment": "-- SELECT 1",
}


MORE = {
    "rows without end": (
        "SELECT count(*) FROM range(1000000000) a, range(1000000) b "
        "WHERE (a.range * b.range) % 7 = 3"
    ),
    "rows without end, explained": (
        "EXPLAIN ANALYZE SELECT count(*) FROM range(1000000000) a, range(1000000) b "
        "WHERE (a.range * b.range) % 7 = 3"
    ),
    "calls times calls": (
        "SELECT count(*) FROM calls, range(99999) a, range(99999) b, range(99999) c "
        "WHERE hash(tool, a.range, b.range, c.range) % 7 = 3"
    ),
    "a recursion without end": (
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"
    ),
    "a series": "SELECT sum(x) FROM generate_series(1, 1000000000000) s(x) WHERE x % 3 = 1",
    "a function of ours": "SELECT sum(t_quantile(0.975, range + 1)) FROM range(100000000000)",
    "sorting": "SELECT * FROM range(10000000000) ORDER BY md5(range::VARCHAR) OFFSET 500",
    "groups": "SELECT count(*) FROM (SELECT md5(range::TEXT) FROM range(10000000000) GROUP BY 1)",
    "a list": "SELECT len(list(range)) FROM range(100000000000)",
    "a text": "SELECT length(string_agg(repeat('x', 1000), '')) FROM range(100000000)",
    "a list at once": "SELECT len(range(1000000000000))",
    "a text at once": "SELECT length(repeat('x', 10000000000))",
    "parentheses": f"SELECT {'(' * 5000}1{')' * 5000}",
    "a long sum": f"SELECT {'+'.join(['1'] * 20000)}",
}
"""What takes more time or memory than there is."""


@pytest.mark.slow
@pytest.mark.parametrize("query", MORE.values(), ids=MORE)
def test_sql_takes_no_more_than_it_may(small: mt.Store, query: str):
    store = mt.open_store(small.path, memory="200MB")
    said = "was stopped; ask for less|not supported|maximum supported|depth limit"
    with pytest.raises((QueryError, duckdb.Error), match=said), store.within(1):
        store.sql(query).fetchall()
    assert store.sql("SELECT tool FROM calls").fetchall() == [("read",)]


ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE a.range * b.range = 7"


@pytest.mark.slow
@pytest.mark.parametrize("side", ["base", "new"])
def test_a_comparison_takes_no_more_time_than_a_store_may(small: mt.Store, side: str):
    stores = {"base": mt.open_store(small.path), "new": mt.open_store(small.path)}
    found = stores["base"].compare(stores["new"])
    with pytest.raises(QueryError, match="was stopped; ask for less"), stores[side].within(0.5):
        found._rows(ENDLESS).fetchall()
    assert found.tools.fetchall()


@pytest.mark.slow
def test_a_comparison_keeps_to_the_memory_of_its_stores_and_aside_of_the_working_folder(small):
    store = mt.open_store(small.path, memory="200MB")
    rows = store.compare(small)._rows(
        "SELECT current_setting('memory_limit'), current_setting('temp_directory')"
    )
    [(limit, aside)] = rows.fetchall()
    assert limit == "190.7 MiB"
    assert not Path(aside).is_relative_to(Path.cwd())


def test_without_a_limit_of_time_an_interrupt_is_what_it_was(small: mt.Store):
    with pytest.raises(duckdb.InterruptException), small.within(None):
        raise duckdb.InterruptException("stopped by somebody")


def test_memory_that_is_no_size_is_refused_with_what_to_write(small: mt.Store):
    with pytest.raises(UsageError, match="'lots' is no size; write 2GB"):
        mt.open_store(small.path, memory="lots").ask("latency")


@pytest.mark.slow
def test_threads_may_ask_a_store_from_its_first_question_on(small: mt.Store):
    asked = ["latency", "sessions", "tool_scores", "latency"] * 2
    for _ in range(5):
        store, together = mt.open_store(small.path), threading.Barrier(len(asked))

        def ask(question: str, store: mt.Store = store, together=together) -> int:
            together.wait(60)
            return len(store.ask(question).fetchall())

        with ThreadPoolExecutor(len(asked)) as pool:
            assert list(pool.map(ask, asked)) == [1] * len(asked)


def test_what_does_not_fit_into_memory_is_put_aside_where_only_we_look(small: mt.Store):
    store = mt.open_store(small.path)
    [(aside,)] = store.sql("SELECT current_setting('temp_directory')").fetchall()
    assert Path(aside).stat().st_mode & 0o777 == 0o700
    assert not Path(aside).is_relative_to(Path.cwd())
    del store
    gc.collect()
    assert not Path(aside).exists()


def test_the_views_that_only_questions_read_are_not_listed(small: mt.Store):
    names = [name for (name,) in small.sql("show tables;").fetchall()]
    assert {"calls", "usage", "tool_scores"} <= set(names)
    assert not [name for name in names if name.startswith("_")]


def test_times_can_be_fetched_as_they_are(small: mt.Store):
    [(at,)] = small.sql("SELECT requested_at FROM calls").fetchall()
    assert at.utcoffset() is not None


@pytest.mark.parametrize("attack", READS.values(), ids=READS)
def test_sql_reads_the_store_and_nothing_else(small: mt.Store, attack: str):
    # Some are refused when they are read, some not before they run.
    with pytest.raises((QueryError, duckdb.Error)) as refused:
        small.sql(attack.format(folder=small.path.parent)).fetchall()
    assert "xyzzy" not in str(refused.value)
    assert small.sql("SELECT tool FROM calls").fetchall() == [("read",)]


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
        "SELECT tool FROM calls WHERE tool <> 'query (' AND tool NOT IN ('checkpoint')",
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


SPOILT: dict[str, tuple[Any, str]] = {
    "a list": ([1], "is no store.json of ours"),
    "another format": ({"format": 99}, "is a store of format 99"),
    "a format that is a text": ({"format": "x"}, "is a store of format x"),
    "an archive that is a number": ({"format": 1, "archive": 5}, "is no store.json of ours"),
    "files that are numbers": ({"format": 1, "archive": [5]}, "is no store.json of ours"),
    "parts in a list": ({"format": 1, "archive": [], "parts": [1]}, "is no store.json of ours"),
    "parts that are numbers": (
        {"format": 1, "archive": [], "parts": {"x": 1}},
        "is no store.json of ours",
    ),
    "parts without a size": (
        {"format": 1, "archive": [], "parts": {"x": {}}},
        "is no store.json of ours",
    ),
    "parts that are nothing": ({"format": 1, "archive": [], "parts": None}, "of ours"),
}


@pytest.mark.parametrize(("manifest", "words"), SPOILT.values(), ids=SPOILT)
def test_a_manifest_that_somebody_spoilt_is_no_store(small: mt.Store, tmp_path, manifest, words):
    folder = shutil.copytree(small.path, tmp_path / "store")
    (folder / "store.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=words):
        mt.open_store(folder)
    (folder / "store.json").write_text("[" * 100_000)
    with pytest.raises(StoreError, match="cannot be read"):
        mt.open_store(folder)
