"""SQL from an untrusted source can only read the store, within limits."""

import contextlib
import gc
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import mcptally as mt
from mcptally.analytics import spill
from mcptally.analytics.connections import Connections
from mcptally.analytics.sql_guard import check_select
from mcptally.errors import QueryError, StoreError, UsageError
from mcptally.store.manifest import STORE_FORMAT
from tests.commands import run


@pytest.fixture(scope="module")
def small(small_store, tmp_path_factory) -> mt.Store:
    """A small store next to files that SQL must not read."""
    folder = tmp_path_factory.mktemp("sql")
    shutil.copytree(small_store.path, folder / "store")
    (folder / "secret.csv").write_text("word\nxyzzy\n")
    with duckdb.connect(str(folder / "other.duckdb")) as other:
        other.execute(f"CREATE TABLE t AS FROM '{folder}/secret.csv'")
        other.execute(f"COPY t TO '{folder}/x.parquet'")
    return mt.open_store(folder / "store")


@pytest.fixture(scope="module")
def limited(small) -> mt.Store:
    """The small store, whose queries run in child processes with little memory."""
    return mt.open_store(small.path, memory="200MB")


REFUSED = tomllib.loads(
    Path(__file__).with_name("refused_queries.toml").read_text(encoding="utf-8")
)
READS = REFUSED["reads"]
WRITES = REFUSED["writes"] | {"a lone surrogate": "SELECT '\ud800'"}


NATIVE = {
    "a distance of long texts": (
        "SELECT damerau_levenshtein(repeat('a', 20000), repeat('b', 20000))"
    ),
    "a wide number, formatted": "SELECT length(format('{:1000000000d}', 1))",
    "padding": "SELECT length(lpad('a', 1000000000, 'b'))",
}
"""Functions in native code whose time and memory DuckDB does not control."""


MORE = {
    "rows without end": (
        "SELECT count(*) FROM range(1000000000) a, range(1000000) b "
        "WHERE (a.range * b.range) % 7 = 3"
    ),
    "a recursion without end": (
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"
    ),
    "a function of ours": "SELECT sum(t_quantile(0.975, range + 1)) FROM range(100000000000)",
    "sorting": "SELECT * FROM range(10000000000) ORDER BY md5(range::VARCHAR) OFFSET 500",
    "a list": "SELECT len(list(range)) FROM range(100000000000)",
    "a text at once": "SELECT length(repeat('x', 10000000000))",
    "parentheses": f"SELECT {'(' * 5000}1{')' * 5000}",
}
"""Queries that need more time or memory than their limits."""


@pytest.mark.slow
@pytest.mark.parametrize("query", MORE.values(), ids=MORE)
def test_sql_is_stopped_at_its_limits(limited: mt.Store, query: str):
    said = "was stopped; ask for less|not supported|maximum supported|depth limit"
    with pytest.raises((QueryError, duckdb.Error), match=said), limited.within(0.2):
        limited.sql(query).fetchall()
    assert limited.sql("SELECT tool FROM calls").fetchall() == [("read",)]


MEASURED = """
import resource, sys
import mcptally as mt
from mcptally.errors import QueryError

store = mt.open_store(sys.argv[1], memory="200MB")
for query in sys.argv[2:]:
    try:
        with store.within(2):
            store.sql(query)
    except QueryError as error:
        print(error)
    assert store.sql("SELECT tool FROM calls").fetchall() == [("read",)]
del store
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits what a process may write to")
def test_a_function_that_duckdb_cannot_interrupt_is_stopped_at_its_limits(small: mt.Store):
    script = [sys.executable, "-c", MEASURED, str(small.path), *NATIVE.values()]
    done = subprocess.run(script, capture_output=True, text=True, check=True, timeout=300)
    *said, peak = done.stdout.splitlines()
    assert len(said) == len(NATIVE)
    assert all("was stopped; ask for less" in line for line in said)
    assert int(peak) < 700_000  # kB: 200 MB and the headroom, Python, DuckDB and Arrow


@pytest.mark.slow
def test_the_process_of_a_query_ends_with_its_parent(small: mt.Store):
    script = (
        "import os, signal, sys, threading; import mcptally as mt\n"
        "store = mt.open_store(sys.argv[1], memory='2GB')\n"
        "store.sql('SELECT 1')\n"
        "child = store._children._free[0]\n"
        "child._send(('sql', (sys.argv[2],), {}, 0))\n"
        "print(child._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    command = [sys.executable, "-c", script, str(small.path), MORE["rows without end"]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    with contextlib.suppress(ProcessLookupError):  # it is gone already
        child = os.pidfd_open(int(done.stdout))
        ended, _, _ = select.select([child], [], [], 60)
        if not ended:
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)
        assert ended


@pytest.mark.slow
def test_an_answer_with_limits_has_the_types_and_values_of_one_without(small, limited):
    query = (
        "SELECT sum(x)::HUGEINT AS h, '00000000-0000-0000-0000-000000000001'::UUID AS u, "
        "INTERVAL 3 DAYS AS i, TIME '10:00' AS t, '101'::BIT AS b, {'a': [1, NULL]} AS s, "
        "MAP {'k': 1} AS m, 1.5::DECIMAL(5, 2) AS d, '\\xAA'::BLOB AS bl, DATE '2020-01-01' AS dt, "
        "'[1]'::JSON AS j, max(requested_at) AS at "
        "FROM calls, range(3) r(x)"
    )
    found, free = limited.sql(query), small.sql(query)
    assert (found.types, found.columns) == (free.types, free.columns)
    assert found.fetchall() == free.fetchall()
    assert found.fetchall() == free.fetchall()  # a relation can be read again
    question = limited.ask("tool_scores", server="demo")
    assert question.fetchall() == small.ask("tool_scores", server="demo").fetchall()


@pytest.mark.slow
def test_an_endless_query_returns_the_requested_rows(limited: mt.Store):
    with limited.within(20, rows=3):
        rows = limited.sql("SELECT * FROM range(1000000000000)").fetchall()
    assert rows == [(0,), (1,), (2,)]


@pytest.mark.slow
def test_parameters_and_errors_pass_through_the_child_process(limited: mt.Store):
    assert limited.sql("SELECT ? + 1", params=[41]).fetchall() == [(42,)]
    with pytest.raises(QueryError, match="nope") as refused:
        limited.sql("SELECT nope FROM calls")
    assert isinstance(refused.value.__cause__, duckdb.BinderException)
    with pytest.raises(QueryError, match="must be a single SELECT"):
        limited.sql("DROP VIEW calls")
    with pytest.raises(UsageError, match="yesterday-ish"):
        limited.ask("protocol_versions", since="yesterday-ish")


@pytest.mark.slow
def test_a_comparison_has_the_memory_limit_of_its_stores_and_spills_outside_the_working_folder(
    small, limited
):
    rows = limited.compare(small)._rows(
        "SELECT current_setting('memory_limit'), current_setting('temp_directory')"
    )
    [(limit, aside)] = rows.fetchall()
    assert limit == "190.7 MiB"
    assert not Path(aside).is_relative_to(Path.cwd())


@pytest.mark.slow
def test_an_invalid_memory_size_is_rejected_with_an_example(small: mt.Store):
    with pytest.raises(UsageError, match="'lots' is not a size; write 2GB"):
        mt.open_store(small.path, memory="lots").ask("latency")


@pytest.mark.slow
def test_threads_may_share_a_store_from_the_first_question_and_an_answer(small: mt.Store):
    asked = ["latency", "sessions", "tool_scores", "latency"] * 2
    for _ in range(3):
        store, together = mt.open_store(small.path), threading.Barrier(len(asked))

        def ask(question: str, store: mt.Store = store, together=together) -> int:
            together.wait(60)
            return len(store.ask(question).fetchall())

        with ThreadPoolExecutor(len(asked)) as pool:
            assert list(pool.map(ask, asked)) == [1] * len(asked)
            shared = [store.ask("latency")] * len(asked)
            assert list(pool.map(lambda answer: answer.pl().height, shared)) == [1] * len(asked)


@pytest.mark.slow
def test_data_is_spilled_to_a_folder_that_only_this_user_can_read(small: mt.Store):
    store = mt.open_store(small.path)
    [(aside,)] = store.sql("SELECT current_setting('temp_directory')").fetchall()
    assert Path(aside).stat().st_mode & 0o777 == 0o700
    assert not Path(aside).is_relative_to(Path.cwd())
    del store
    gc.collect()
    assert not Path(aside).exists()


def test_a_spill_folder_of_a_killed_process_is_removed_and_one_in_use_is_kept():
    script = (
        "import os; from mcptally.analytics.spill import SpillFolder\n"
        "print(SpillFolder().path, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script + "os.kill(os.getpid(), 9)"],
        capture_output=True,
        text=True,
        check=False,
    )
    abandoned = Path(done.stdout.strip())
    assert abandoned.is_dir()
    used = spill.SpillFolder()
    other = spill.SpillFolder()
    assert not abandoned.exists()
    assert used.path.is_dir()
    for folder in (used, other):
        folder.remove()
        assert not folder.path.exists()


@pytest.mark.slow
def test_a_killed_query_leaves_no_spill_folder(small: mt.Store):
    store = mt.open_store(small.path, memory="200MB")
    [(aside,)] = store.sql("SELECT current_setting('temp_directory')").fetchall()
    assert Path(aside).is_dir()
    with pytest.raises(QueryError, match="more than 1 s"), store.within(1):
        store.sql(MORE["sorting"])
    assert not Path(aside).exists()


@pytest.mark.slow
def test_the_views_that_only_questions_read_are_not_listed(small: mt.Store):
    names = [name for (name,) in small.sql("show tables;").fetchall()]
    assert {"calls", "usage", "tool_scores"} <= set(names)
    assert not [name for name in names if name.startswith("_")]


def test_fetched_times_have_a_time_zone(small: mt.Store):
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
        'SELECT tool AS "query" FROM calls WHERE tool <> \'"function_name":"query" é\'',
        "SELECT tool AS \"日本\" FROM calls -- é query('SELECT 1')",
    ],
)
def test_every_form_of_select_is_answered(small: mt.Store, query: str):
    assert small.sql(query).fetchall() == [("read",)]


@pytest.mark.parametrize("query", ["DESCRIBE calls", "SHOW TABLES", "EXPLAIN SELECT * FROM calls"])
def test_statements_that_describe_are_answered(small: mt.Store, query: str):
    assert small.sql(query).fetchall()


def test_values_are_bound(small: mt.Store):
    query = "SELECT count(*) FROM calls WHERE tool = ?"
    assert small.sql(query, params=["read"]).fetchall() == [(1,)]
    assert small.sql(query, params=["' OR true --"]).fetchall() == [(0,)]


SPOILT: dict[str, tuple[Any, str]] = {
    "a list": ([1], "is not a manifest of mcptally"),
    "another format": ({"format": 99}, "is a store of format 99"),
    "parts in a list": (
        {"format": STORE_FORMAT, "archive": [], "parts": [1]},
        "is not a manifest of mcptally",
    ),
    "a part outside the store": (
        {"format": STORE_FORMAT, "archive": [], "parts": {"calls/../../x.parquet": {"bytes": 1}}},
        "is not a manifest of mcptally",
    ),
    "no part of a table": ({"format": STORE_FORMAT, "archive": [], "parts": {}}, "has no table"),
}


@pytest.mark.parametrize(("manifest", "words"), SPOILT.values(), ids=SPOILT)
def test_a_store_with_an_invalid_manifest_is_rejected(small: mt.Store, tmp_path, manifest, words):
    folder = shutil.copytree(small.path, tmp_path / "store")
    (folder / "store.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=words):
        mt.open_store(folder)
    (folder / "store.json").write_text("[" * 100_000)
    with pytest.raises(StoreError, match="cannot be read"):
        mt.open_store(folder)


def test_a_store_of_another_format_is_not_compared(small: mt.Store, tmp_path):
    old = shutil.copytree(small.path, tmp_path / "old")
    (old / "store.json").write_text(json.dumps(small.manifest | {"format": STORE_FORMAT - 1}))
    for sides in ([old, small.path], [small.path, old]):
        done = run("compare", *sides)
        assert (done.returncode, done.stdout) == (3, "")
        assert f"{old}: is a store of format {STORE_FORMAT - 1}" in done.stderr
        assert f"rebuild it with: mcptally score ARCHIVE -o {old}" in done.stderr


@pytest.mark.slow
def test_a_store_whose_table_lacks_a_column_is_named_with_advice(small: mt.Store, tmp_path):
    """A version between two releases can have the same format and other columns."""
    old = shutil.copytree(small.path, tmp_path / "old")
    parts = {name: dict(part) for name, part in small.manifest["parts"].items()}
    for name, part in parts.items():
        if name.startswith("calls/"):
            pq.write_table(pq.read_table(old / name).drop_columns(["verdict"]), old / name)
            part["bytes"] = (old / name).stat().st_size
    (old / "store.json").write_text(json.dumps(small.manifest | {"parts": parts}))
    stores = [mt.open_store(old), small]
    words = re.escape(f"{old}: was written by mcptally") + ".*; rebuild it with: mcptally score"
    for answer in (
        lambda: stores[0].ask("error_groups"),
        lambda: stores[0].compare(stores[1]),
        lambda: stores[1].compare(stores[0]),
    ):
        with pytest.raises(StoreError, match=words):
            answer()


BLANKS = [*" \t\n\u00a0\u2003\u3000\u200b\ufeff\u180e\u202f", "/* é */", "/**/", "-- 😀\n", ""]
TEXTS = ["'é'", "'日本'", "E'\\'é'", "$$é query( $$", "$x$é$x$", '1 AS "é"', '1 AS "q(""é"']
CALLS = [
    "query('SELECT 1')",
    "\"Query\"{}('SELECT 1')",
    "main.query{}('SELECT 1')",
    "checkpoint{}()",
]


@pytest.mark.slow
def test_letters_white_space_and_comments_cannot_hide_a_call(small: mt.Store):
    """Random statements that would run SQL from a string; 68,000 others were tried once."""
    chosen = random.Random(7)
    connection = Connections(small.path, None).get()
    passed = []
    for _ in range(1000):
        blanks = [chosen.choice(BLANKS) for _ in range(4)]
        call_ = chosen.choice(CALLS).format(blanks[0])
        query = (
            f"SELECT{blanks[1] or ' '}{chosen.choice(TEXTS)}, *{blanks[2]} FROM {blanks[3]}{call_}"
        )
        with contextlib.suppress(QueryError):
            check_select(connection, query)
            with contextlib.suppress(duckdb.Error):
                passed.append((query, connection.cursor().sql(query).fetchall()))
    assert passed == []


@pytest.mark.slow
def test_times_are_in_utc_whatever_the_zone_of_the_machine(small):
    at = "TIMESTAMPTZ '2026-11-21 23:30:00+00'"
    query = f"SELECT hour({at}) AS hours, {at} AS moment"
    command = [sys.executable, "-m", "mcptally", "query", str(small.path), query, "--seconds", "60"]
    zone = os.environ | {"TZ": "America/New_York"}
    done = subprocess.run(command, env=zone, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["23", "2026-11-21", "23:30:00"]
