"""The commands as a user sees them: exit codes, messages, and output on stdout and stderr."""

import json
import os
import pkgutil
import shlex
import subprocess
import sys
from pathlib import Path

import click
import polars as pl
import pytest

import mcptally as mt
from mcptally.cli.quantity import DURATION, SIZE
from tests.commands import run
from tests.transcripts import c2s, call, opened, s2c, text, write


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    events = [
        opened(server="demo"),
        c2s(1, call(1, "read", path="a")),
        s2c(2, text(1, "contents")),
        c2s(3, call(2, "read", path="b")),
        s2c(4, text(2, "Error: no such file: b", isError=True)),
        b"a broken line\n",
        c2s(5, call(3, "read", path="c")),
    ]
    write(folder / "traces.jsonl", events)
    done = run("score", folder / "traces.jsonl", "-o", folder / "store")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("not read: at least 0.9% of the archive, in 1 of 1 file:")
    assert done.stdout == ""
    return folder / "store"


@pytest.mark.slow
def test_a_printed_command_can_be_pasted_into_a_shell(store: Path, tmp_path: Path):
    scored = run("score", store.parent / "traces.jsonl", "-o", tmp_path / "it's my store")
    program, *words = shlex.split(scored.stderr.rpartition("; next: ")[2])
    assert program == "mcptally"
    assert run(*words).returncode == 0
    missing = tmp_path / "no store"
    advice = run("query", missing, "tool_scores").stderr.rpartition(": ")[2]
    assert shlex.split(advice)[-2:] == ["-o", f"{missing}"]


def test_columns_with_the_same_name_are_numbered(store: Path):
    done = run("query", store, "SELECT 1 AS a, 2 AS a", "--format", "json")
    assert json.loads(done.stdout) == [{"a": 1, "a_1": 2}]


def test_the_name_of_a_table_shows_the_table(store: Path):
    rows = json.loads(run("query", store, "calls", "--format", "json").stdout)
    [counted] = json.loads(
        run("query", store, "SELECT count(*) AS n FROM calls", "--format", "json").stdout
    )
    assert len(rows) == counted["n"] > 0
    assert "call_id" in rows[0]
    done = run("query", store, "cals")
    assert (done.returncode, "did you mean calls" in done.stderr) == (2, True)


@pytest.mark.parametrize("sql", ["FROM\ncalls", "SELECT(1)"])
def test_sql_without_a_blank_is_sql(store: Path, sql: str):
    assert run("query", store, sql).returncode == 0


def test_without_a_question_the_questions_are_listed(store: Path):
    done = run("query", store)
    assert done.returncode == 0
    assert "tool_scores" in done.stdout
    assert "server_scores" in done.stdout


@pytest.mark.slow
def test_a_reader_that_has_enough_is_no_error(store: Path):
    command = f"{sys.executable} -m mcptally query {store} 'SELECT * FROM range(20000)' | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.slow
def test_a_closed_pipe_is_no_error_in_commands_that_print_line_by_line():
    command = [sys.executable, "-m", "mcptally", "rules"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert (running.wait(), running.stderr.read()) == (0, b"")


@pytest.mark.slow
def test_the_name_of_a_file_never_becomes_a_terminal_escape(tmp_path: Path):
    bad = tmp_path / "a\x1b[2J\u202e.jsonl"
    bad.write_bytes(b"no event\n")
    done = run("score", bad, "-o", tmp_path / "store")
    assert done.returncode == 3
    assert "\ufffd[2J\ufffd.jsonl" in done.stderr


@pytest.mark.parametrize("arguments", ["NaN", '{"a": -Infinity}', "{", "\udcff", "@/no/such/file"])
def test_arguments_that_are_no_json_are_a_sentence_and_exit_2(store: Path, arguments: str):
    done = run("validate", store, "--server", "demo", "--tool", "read", "--arguments", arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("mcptally: --arguments")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (SIZE, "64M", 64 << 20),
        (SIZE, "64MiB", 64 << 20),
        (SIZE, "1.5 kb", 1536),
        (SIZE, "10b", 10),
        (SIZE, "OFF", None),
        (DURATION, "90", 90),
        (DURATION, "1.5h", 5400),
        (DURATION, "off", None),
    ],
)
def test_sizes_and_times_are_read_as_people_write_them(kind, written, value):
    assert kind.convert(written, None, None) == value


@pytest.mark.parametrize(
    ("kind", "written"),
    [(SIZE, "64h"), (SIZE, "0"), (SIZE, "-1M"), (SIZE, ""), (DURATION, "1mb"), (DURATION, "5b")],
)
def test_a_size_or_time_that_is_none_is_refused_with_the_units(kind, written):
    with pytest.raises(
        click.BadParameter, match=f"is not a valid {kind.name}: give a number with "
    ):
        kind.convert(written, None, None)


@pytest.mark.slow
def test_json_is_complete_in_the_poorest_encoding_of_stdout(store: Path):
    words = "é\N{EN DASH}\N{GRINNING FACE}"
    command = [sys.executable, "-m", "mcptally", "query", store, "--format", "json"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    said = subprocess.check_output([*command, f"SELECT '{words}' AS a"], env=environment)
    assert json.loads(said.decode("ascii")) == [{"a": words}]


@pytest.mark.slow
def test_payloads_can_be_left_out(tmp_path: Path):
    trace = write(tmp_path / "x.jsonl", [opened(), c2s(1, call(1, word="s3cr3t"))])
    done = run("score", trace, "-o", tmp_path / "store", "--no-payloads")
    assert done.returncode == 0
    parts = list((tmp_path / "store").rglob("*.parquet"))
    assert parts
    assert not [part for part in parts if "s3cr3t" in pl.read_parquet(part).write_json()]


def test_no_module_has_a_public_name_which_it_would_replace_once_it_is_imported():
    assert {module.name for module in pkgutil.iter_modules(mt.__path__)}.isdisjoint(mt.__all__)
