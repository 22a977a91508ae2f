"""Tables as a person sees them."""

import os
import pty
import re
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest
from rich.cells import cell_len

import mcptally as mt
from mcptally import render
from tests.ask import terminal

STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("width", terminal.WIDTHS)
def test_a_terminal_shows_what_it_showed_when_somebody_looked(store: mt.Store, width: int):
    kept = (terminal.GOLDEN / f"terminal-{width}.txt").read_text(encoding="utf-8")
    assert terminal.session(store, width) == kept, "python -m tests.ask.terminal writes it anew"


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(store: mt.Store, width: int):
    lines = terminal.session(store, width).splitlines()
    assert [line for line in lines if cell_len(line) > width and not line.startswith("$")] == []


def test_a_table_without_a_width_is_whole():
    table = pa.table({"tool": ["x" * 300], "calls": [1]})
    assert "x" * 300 in render.text_table(table, width=None)


SCORES = {
    "sure and good": ({"confidence": 99.0, "low": 95.0, "high": 100.0, "few": False}, "32"),
    "sure and bad": ({"confidence": 20.0, "low": 10.0, "high": 40.0, "few": False}, "31"),
    "who knows": ({"confidence": 20.0, "low": 1.0, "high": 95.0, "few": False}, None),
    "too little data": ({"confidence": 20.0, "low": 1.0, "high": 40.0, "few": True}, "2"),
}


@pytest.mark.parametrize(("score", "style"), SCORES.values(), ids=SCORES)
def test_colour_says_what_the_interval_says(score, style):
    row = {
        "tool": "t",
        "confidence": score["confidence"],
        "confidence_low": score["low"],
        "confidence_high": score["high"],
        "insufficient_data": score["few"],
    }
    table = pa.Table.from_pylist([row])
    text = render.text_table(table, ["tool", "confidence"], width=80, colour=True)
    styles = re.findall(r"\x1b\[([0-9;]*)m", text.splitlines()[-1])
    assert (style in styles) if style else not {"31", "32", "33"} & set(styles)
    plain = render.text_table(table, ["tool", "confidence"], width=80)
    assert "\x1b" not in plain
    assert f"{score['confidence']:.0f} % ({score['low']:.0f}\N{EN DASH}" in plain


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
        shown = render.text_table(tables[where], width=width, colour=True)
        assert not set(STYLE.sub("", shown).replace("\n", "")) & set("\x1b\x9b\r\x07\u202e\u200b")
        assert len(shown.splitlines()) in {2, 3}  # a heading may take two
        if width:
            assert max(map(cell_len, STYLE.sub("", shown).splitlines())) <= width


def test_markdown_from_an_archive_is_text():
    hostile = "<script>|[x](javascript:1)![y](http://z)`c`*b*"
    text = render.markdown(pa.table({"tool": [hostile]})).splitlines()[-1]
    assert text == (r"| &lt;script>\|\[x\](javascript:1)!\[y\](http://z)\`c\`\*b\* |")


def in_a_terminal(command: list[str], **environment: str) -> str:
    """What a command writes to a terminal of 80 columns."""
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


def test_a_terminal_gets_colour_a_width_and_fifty_rows_and_a_pipe_gets_everything(store: mt.Store):
    command = [sys.executable, "-m", "mcptally", "query", str(store.path), "latency"]
    said = in_a_terminal(command)
    lines = STYLE.sub("", said).splitlines()
    assert "\x1b[1m" in said
    assert max(map(len, lines)) <= 80
    assert "the first 50 rows; --limit 0 prints all" in lines
    assert "\x1b[3" not in in_a_terminal(command, NO_COLOR="1")
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "\x1b" not in piped
    assert len(piped.splitlines()) > 60


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "markdown"])
def test_every_format_is_read_back(store: mt.Store, form: str):
    command = [sys.executable, "-m", "mcptally", "query", str(store.path)]
    query = "SELECT sum(1) AS n, 'nan'::DOUBLE AS x, [1, 2] AS l, TIMESTAMPTZ '2026-11-21' AS t"
    done = subprocess.run([*command, query, "--format", form], capture_output=True, check=True)
    if form == "json":
        text = b'"n": 1,\n  "x": null,'
        assert text in done.stdout
    elif form == "parquet":
        assert pa.parquet.read_table(pa.BufferReader(done.stdout)).num_rows == 1
    else:
        assert b"[1, 2]" in done.stdout or b"1, 2" in done.stdout
