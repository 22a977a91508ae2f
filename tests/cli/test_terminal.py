"""Tables as a person sees them."""

import csv
import datetime
import io
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import time
import tomllib

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from rich.cells import cell_len

import mcptally as mt
from mcptally import cli
from mcptally.analytics import duckdb_file
from mcptally.analytics.views import displayed_columns, question_titles
from mcptally.errors import QueryError
from mcptally.output import render, text_table
from mcptally.output.formats import markdown
from tests.analytics.built_stores import build, call
from tests.cli import terminal
from tests.commands import run

STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def answers(sample_store: mt.Store) -> terminal.Answers:
    return terminal.ask(sample_store)


@pytest.mark.parametrize("width", terminal.WIDTHS)
def test_a_terminal_shows_what_it_showed_when_somebody_looked(
    answers: terminal.Answers, width: int
):
    kept = (terminal.GOLDEN / f"terminal-{width}.txt").read_text(encoding="utf-8")
    assert terminal.session(answers, width) == kept, "python -m tests.cli.terminal writes it anew"


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(answers: terminal.Answers, width: int):
    lines = terminal.session(answers, width).splitlines()
    assert [line for line in lines if cell_len(line) > width and not line.startswith("$")] == []


def test_a_huge_name_does_not_cost_minutes():
    assert len(text_table.text_table(pa.table({"tool": ["t" * 1_000_000]}), width=80)) < 5000


def score_row(**fields):
    row = {"server": "a_server_with_a_name", "tool": "a_tool_with_a_name", "ok": 0, "calls": 1449}
    for name in ("success_rate", "confidence"):
        row |= {name: None, f"{name}_low": None, f"{name}_high": None}
        row[f"{name}_insufficient_data"] = True
    return row | {"tool_failures": 0} | fields


def confidence(estimate, low, high, *, few=False):
    interval = {"confidence": estimate, "confidence_low": low, "confidence_high": high}
    return interval | {"confidence_insufficient_data": few}


SCORES = {
    "sure and good": (confidence(99.0, 95.0, 100.0), "32"),
    "sure and bad": (confidence(20.0, 10.0, 40.0), "31"),
    "who knows": (confidence(20.0, 1.0, 95.0), None),
    "too little data": (confidence(20.0, 1.0, 40.0, few=True), "2"),
}


@pytest.mark.parametrize(("score", "style"), SCORES.values(), ids=SCORES)
def test_colour_says_what_the_interval_says(score, style):
    table = pa.Table.from_pylist([score_row(**score)])
    text = text_table.text_table(table, ["tool", "confidence"], width=80, colour=True)
    styles = re.findall(r"\x1b\[([0-9;]*)m", text.splitlines()[1])
    assert (style in styles) if style else not {"31", "32", "33"} & set(styles)
    plain = text_table.text_table(table, ["tool", "confidence"], width=80)
    assert "\x1b" not in plain
    assert f"{score['confidence']:.0f} % ({score['confidence_low']:.0f}\N{EN DASH}" in plain


@pytest.mark.parametrize("width", [None, 80, 28])
def test_a_mark_stands_before_an_estimate_with_too_little_data(width: int | None):
    rate = {"success_rate": 0.5, "success_rate_low": 0.4, "success_rate_high": 0.6}
    rate["success_rate_insufficient_data"] = False
    rows = [
        score_row(tool=name, **rate, **confidence(50.0, 10.0, 90.0, few=few))
        for name, few in (("thin", True), ("thick", False))
    ]
    names = ["tool", "confidence", "success_rate"]
    lines = text_table.text_table(pa.Table.from_pylist(rows), names, width=width).splitlines()
    assert ["? 50 % (10" in line for line in lines[1:3]] == [True, False]
    assert "? 50.0%" not in lines[1]
    assert lines[3] == "? insufficient_data"
    sure = pa.Table.from_pylist(rows[1:])
    assert "insufficient_data" not in text_table.text_table(sure, names, width=width)


DOWN = score_row(success_rate=0.0, success_rate_low=0.0, success_rate_high=0.1)
COLUMNS = ["server", "tool", "ok", "calls", "success_rate", "confidence", "tool_failures"]


@pytest.mark.parametrize("width", [None, 200, 80, 60])
def test_a_tool_that_never_worked_is_named_so_and_has_no_evidence(width: int | None):
    works = score_row(ok=1449, success_rate=1.0, success_rate_low=0.9, success_rate_high=1.0)
    works |= {**confidence(100.0, 90.0, 100.0), "success_rate_insufficient_data": False}
    text = text_table.text_table(pa.Table.from_pylist([DOWN, works]), COLUMNS, width=width)
    down, up = [line for line in text.splitlines() if "1,449" in line]
    assert re.search(r" 0  1,449 +never worked", down)
    assert re.search(r" 1,449  1,449  100\.0% \(90.100\)", up)
    if width in {None, 200}:
        assert "no evidence" in down
        assert "100 % (90" in up


def test_a_cancelled_tool_has_no_success_rate_and_is_not_said_to_have_never_worked():
    text = text_table.text_table(pa.Table.from_pylist([score_row()]), COLUMNS, width=None)
    assert "never worked" not in text


@pytest.mark.parametrize("width", [24, 32, 40, 50, 60, 80, 120])
def test_a_narrow_terminal_keeps_ok_and_calls(width: int):
    text = text_table.text_table(pa.Table.from_pylist([DOWN]), COLUMNS, width=width)
    assert re.search(r" 0  1,449\b", text)
    assert max(map(cell_len, text.splitlines())) <= width


def markdown_of(table: pa.Table) -> str:
    file = io.BytesIO()
    markdown.write(iter(table.to_batches()), table.schema, file)
    return file.getvalue().decode()


def test_markdown_names_what_a_number_does_not_say():
    row = markdown_of(pa.Table.from_pylist([DOWN])).splitlines()[-1]
    assert "| never worked |" in row
    assert "| no evidence |" in row


def test_every_heading_is_the_name_of_a_column():
    for question in question_titles():
        columns = displayed_columns(question)
        wide = {name: pa.array(["x" * 60]) for name in columns}
        heading = text_table.text_table(pa.table(wide), columns, width=None).splitlines()[0]
        assert heading.split() == columns, question
        # Above narrow cells, a heading has two lines, which together contain the name.
        narrow = {name: pa.array(["x"]) for name in columns}
        *lines, _ = text_table.text_table(pa.table(narrow), columns, width=None).splitlines()
        assert sorted("".join(lines).replace(" ", "")) == sorted("".join(columns)), question


HOSTILE = {
    "a terminal escape": "\x1b[31mred\x1b]0;title\x07",
    "an 8-bit escape": "\x9b31m",
    "a bidirectional override": "\u202egnp.exe",
    "an invisible text": "a\U000e0041\U000e0042\u200bb\xad",
    "lines and returns": "one\r\ntwo\rthree",
    "wide characters": "日本語" * 40,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("where", ["cell", "column", "list"])
def test_nothing_from_an_archive_acts_on_a_terminal(text: str, where: str):
    tables = {
        "cell": pa.table({"tool": [text], "calls": [1]}),
        "column": pa.table({text: ["x"], "calls": [1]}),
        "list": pa.table({"tool": [[text, text]], "calls": [1]}),
    }
    for width in (60, None):
        shown = text_table.text_table(tables[where], width=width, colour=True)
        assert not set(STYLE.sub("", shown).replace("\n", "")) & set("\x1b\x9b\r\x07\u202e\u200b")
        assert len(shown.splitlines()) in {2, 3}  # a heading may take two
        if width:
            assert max(map(cell_len, STYLE.sub("", shown).splitlines())) <= width


def in_a_terminal(command: list[str], **environment: str) -> str:
    """Return what a command writes to a terminal with 80 columns."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": "80", "TERM": "xterm", **environment}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=env)
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux says so where others send an empty read
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    assert process.wait() == 0
    return said.decode()


@pytest.mark.slow
def test_a_terminal_gets_colour_a_width_and_fifty_rows_and_a_pipe_gets_everything(
    sample_store: mt.Store,
):
    command = [sys.executable, "-m", "mcptally", "query", str(sample_store.path), "latency"]
    said = in_a_terminal(command)
    lines = STYLE.sub("", said).splitlines()
    assert "\x1b[1m" in said
    assert max(map(len, lines)) <= 80
    total = len(sample_store.ask("latency").fetchall())
    assert f"only the first 50 of {total} rows shown; --limit 0 shows all" in lines
    assert "\x1b[3" not in in_a_terminal(command, NO_COLOR="1")
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in piped
    assert len(piped.splitlines()) > 60


def test_a_name_without_room_keeps_both_of_its_ends():
    table = pa.table({"tool": ["list_directory_with_sizes"], "note": ["something went wrong here"]})
    text = text_table.text_table(table, width=40).splitlines()[-1]
    assert re.match(r"list_dir\w*…\w*h_sizes ", text)
    assert text.endswith("…")


NATURAL = {"tool": 30, "text": 40, "retries": 5}
"""Widths of a name, a text and a number; between columns there are two characters."""

# Width of the terminal, and of each column; 0 for a column that is left out.
FITS = {
    "all whole": (79, (30, 40, 5)),
    "the longest loses one character": (78, (30, 39, 5)),
    "texts at their least, a name's being longer": (35, (16, 10, 5)),
    "the last column left out, for one character": (34, (16, 16, 0)),
    "two columns at their least": (28, (16, 10, 0)),
    "two columns stay and are cut further": (27, (12, 13, 0)),
}


def left(natural: dict[str, int], widths: tuple[int, ...]) -> dict[str, int]:
    return {name: size for name, size in zip(natural, widths, strict=True) if size}


@pytest.mark.parametrize(("width", "sizes"), FITS.values(), ids=FITS)
def test_columns_share_a_line_to_the_last_character(width: int, sizes: tuple[int, ...]):
    fitted = text_table.fit_widths(NATURAL, fixed={"retries"}, width=width)
    assert fitted == left(NATURAL, sizes)


GROUP = {"server": 30, "tool": 30, "template": 90, "verdict": 8, "calls": 5, "call_id": 16}
GROUP_FITS = {
    "all whole": (189, (30, 30, 90, 8, 5, 16)),
    "the message is cut first": (149, (30, 30, 50, 8, 5, 16)),
    "names and the message at their least": (101, (16, 16, 30, 8, 5, 16)),
    "a column that is not needed is left out": (91, (16, 16, 30, 0, 5, 16)),
    "names are cut further": (80, (10, 11, 30, 0, 5, 16)),
    "the message is cut further": (60, (10, 10, 11, 0, 5, 16)),
    "the id is left out": (30, (4, 5, 10, 0, 5, 0)),
}


@pytest.mark.parametrize(("width", "sizes"), GROUP_FITS.values(), ids=GROUP_FITS)
def test_a_narrow_table_keeps_the_message_the_calls_and_the_id(width: int, sizes: tuple[int, ...]):
    fixed, numbers = {"calls", "call_id"}, {"calls"}
    fitted = text_table.fit_widths(GROUP, fixed=fixed, width=width, numbers=numbers)
    assert fitted == left(GROUP, sizes)


def test_a_narrow_table_keeps_its_first_number():
    natural = {"server": 16, "tool": 30, "kind": 20, "latency_ms": 10, "bytes": 10}
    numbers = {"latency_ms", "bytes"}
    fitted = text_table.fit_widths(natural, fixed=numbers, width=50, numbers=numbers)
    assert list(fitted) == ["server", "tool", "latency_ms"]


@pytest.mark.parametrize("question", ["error_groups", "hidden_errors", "schema_violations"])
def test_80_columns_show_the_start_of_a_message_and_the_whole_id(
    sample_store: mt.Store, question: str
):
    table = sample_store.ask(question).to_arrow_table()
    columns = displayed_columns(question)
    message = next(name for name in columns if name in {"template", "example", "error"})
    lines = text_table.text_table(table, columns, width=80).splitlines()[-table.num_rows - 1 : -1]
    assert table.num_rows
    for line, row in zip(lines, table.to_pylist(), strict=True):
        assert line.endswith(row["call_id"])
        assert " ".join(row[message].split())[:29] in line


def test_times_are_not_cut():
    start = datetime.datetime(2026, 11, 21, 22, tzinfo=datetime.UTC)
    row = {"server": "s" * 30, "tool": "t" * 30, "start": start}
    text = text_table.text_table(pa.Table.from_pylist([row]), width=56)
    assert "2026-11-21 22:00:00" in text


def test_what_a_person_looks_for_first_goes_last():
    columns = displayed_columns("tool_scores")
    wanted = ["ok", "calls", "success_rate", "confidence", "tool_failures", "hidden_errors"]
    assert [column for column in columns if column in wanted] == wanted


ACTS = "\x1b[2J\x9b31m\x07\u202eevil\u2066\u200b\U000e0041"


def test_an_answer_without_rows_says_so(sample_store: mt.Store):
    for question, meaning in (
        (["SELECT tool FROM calls WHERE false"], "no rows"),
        (["latency", "--min-calls", "9999999"], "no rows with these filters"),
        (["drift"], "No tool changed its definition."),
    ):
        done = run("query", sample_store.path, *question)
        assert done.returncode == 0
        assert done.stderr.splitlines()[-1] == meaning
    done = run("query", sample_store.path, "SELECT tool FROM calls WHERE false", "--format", "json")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, [], "")


ENDLESS = (
    "SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 3"
)


@pytest.mark.slow
def test_ctrl_c_stops_a_query_at_once_and_says_so_with_its_code(sample_store: mt.Store):
    file = sample_store.path / duckdb_file.FILE
    file.unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "mcptally", "query", str(sample_store.path), ENDLESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # The command makes this file before it asks; from then on it is at work.
    while not file.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out, said) == (130, "", "mcptally: interrupted\n")


def test_ctrl_c_while_the_command_line_is_imported_prints_no_traceback(tmp_path):
    (tmp_path / "click.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    root = pathlib.Path(__file__).parents[2]
    for file in ("pyproject.toml", ".recorder/pyproject.toml"):
        script = tomllib.loads((root / file).read_text())["project"]["scripts"]["mcptally"]
        module, _, function = script.partition(":")
        code = f"from {module} import {function}; {function}()"
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
        )
        assert (done.returncode, done.stderr) == (130, "mcptally: interrupted\n")


def test_ctrl_c_in_a_function_that_a_query_calls_is_recognised():
    def interrupted() -> int:
        raise KeyboardInterrupt

    with duckdb.connect() as connection:
        connection.create_function("f", interrupted, [], "INTEGER")
        with pytest.raises(duckdb.Error) as caught:
            connection.execute("SELECT f()")
    assert cli._is_interrupt(caught.value)
    assert not cli._is_interrupt(
        duckdb.Error("Binder Error: no column is called KeyboardInterrupt")
    )


@pytest.mark.slow
def test_an_answer_that_takes_too_long_is_stopped(sample_store: mt.Store):
    done = run("query", sample_store.path, ENDLESS, "--seconds", "0.5")
    assert done.returncode == 2
    assert "more than 0.5 s and was stopped" in done.stderr


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="no full device here")
@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [(["rules"], ""), (["rules", "pairing.late_reply"], ""), (["--help"], "1")],
    ids=["long", "short", "unbuffered"],
)
def test_a_full_disk_behind_stdout_is_named(words: list[str], unbuffered: str):
    """Long output fails while it is written, short output when the command ends."""
    with open("/dev/full", "w") as full:  # noqa: PTH123  (a device)
        done = subprocess.run(
            [sys.executable, "-m", "mcptally", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert (done.returncode, done.stderr) == (3, "mcptally: stdout: no space left on device\n")


@pytest.mark.slow
@pytest.mark.parametrize(("closed", "code"), [(">&-", 3), ("2>&-", 3), ("<&- >&- 2>&-", 0)])
def test_a_command_runs_with_closed_streams(sample_store: mt.Store, closed: str, code: int):
    path = "nowhere" if code else str(sample_store.path)
    words = [sys.executable, "-m", "mcptally", "query", path, "SELECT 1"]
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", *words]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert bool(done.stderr.strip()) == (closed == ">&-")


def test_a_query_with_an_invalid_byte_says_where_it_is(sample_store: mt.Store):
    done = run("query", sample_store.path, "SELECT '\udcff'")
    assert (done.returncode, done.stderr) == (
        2,
        "mcptally: the query is not valid UTF-8 at character 9; remove that character\n",
    )


@pytest.mark.slow
def test_a_memory_limit_that_is_too_small_is_not_reported_as_damage(sample_store: mt.Store):
    done = run("query", sample_store.path, "SELECT 1 FROM calls", "--memory", "1K")
    assert done.returncode == 2
    assert "took more than 1KiB of memory" in done.stderr
    assert "the memory limit is too small to open the store" in done.stderr
    assert "damaged" not in done.stderr


@pytest.mark.slow
def test_a_time_limit_beyond_that_of_locks_is_accepted(sample_store: mt.Store):
    done = run("query", sample_store.path, "SELECT 1 AS n", "--seconds", "1e300", "--format", "csv")
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ['"n"', "1"], "")


HUSHED = "AKIAIOSFODNN7EXAMPLE"
DEEP = {
    "a text": "error_text",
    "a list": "[error_text]",
    "an array": "[error_text]::VARCHAR[1]",
    "a struct of lists": "{'a': [error_text]}",
    "a map": "MAP {'a': error_text}",
    "a union": "union_value(a := error_text)",
    "bytes": "error_text::BLOB",
    "a text turned round": "reverse(error_text)",
}


@pytest.fixture(scope="module")
def hushed(tmp_path_factory):
    """A masked store with a secret in the error text of its only call."""
    folder = tmp_path_factory.mktemp("hushed") / "s"
    build(folder, [call(1, error_text=HUSHED, outcome="tool_error")])
    return mt.open_store(folder, masked=True)


@pytest.mark.parametrize("value", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize("form", ["table", "json", "csv", "parquet", "markdown"])
def test_no_secret_of_a_store_is_shown_however_deep_it_lies(hushed, value, form, capsysbinary):
    render.write(hushed.sql(f"SELECT {value} AS x FROM calls"), form)
    said = capsysbinary.readouterr().out
    if form == "parquet":
        said = repr(pa.parquet.read_table(pa.BufferReader(said)).to_pylist()).encode()
    assert HUSHED.encode() not in said
    assert HUSHED[::-1].encode() not in said
    assert b"[redacted:" in said.replace(b"\\", b"") or b":detcader" in said


VALUES = {
    "INTERVAL 1 DAY": "1 day",
    "INTERVAL 14 MONTH": "14 months",
    "INTERVAL '90.5' SECOND": "00:01:30.500000",
    "INTERVAL 1 HOUR - INTERVAL 2 HOUR": "-01:00:00",
    "INTERVAL 0 DAY": "00:00:00",
    r"'\xaa\x41'::BLOB": r"\xaaA",
    "union_value(a := 5)": "5",
}


@pytest.mark.parametrize(("value", "text"), VALUES.items(), ids=VALUES)
@pytest.mark.parametrize("form", ["json", "csv", "parquet", "table"])
def test_every_type_has_a_text_in_every_format(
    sample_store: mt.Store, value, text, form, capsysbinary
):
    render.write(sample_store.sql(f"SELECT {value} AS x"), form)
    out = capsysbinary.readouterr().out
    if form == "parquet":
        found = pa.parquet.read_table(pa.BufferReader(out)).column(0)[0].as_py()
        assert found == (b"\xaaA" if "BLOB" in value else text)
    elif form == "json":
        assert json.loads(out) == [{"x": text}]
    elif form == "csv":
        row = list(csv.reader(out.decode().splitlines()))[1]
        assert row[0].removeprefix("'") == text  # values that begin with a sign are quoted
    else:
        assert out.decode().splitlines()[1] == text


def test_what_parquet_cannot_hold_is_said(sample_store: mt.Store):
    with pytest.raises(QueryError, match="cast it to text"):
        render.write(sample_store.sql("SELECT [INTERVAL 1 DAY] AS x"), "parquet")
