"""`mcptally import` on the command line."""

import json
from pathlib import Path

import pytest

from mcptally.importers import FORMATS
from tests.commands import run
from tests.importers import styles
from tests.importers.imported_logs import TRACES, events

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def log(tmp_path) -> Path:
    path = tmp_path / "mcp-server-time.log"
    path.write_text(styles.claude_desktop(events(TRACES / "time.jsonl")[:40]))
    return path


@pytest.mark.slow
def test_an_imported_log_can_be_scored_and_checked(log, tmp_path):
    done = run("import", "auto", log, "-o", tmp_path / "t")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 file: 2 recordings, ")
    assert done.stderr == ""
    scored = run("score", tmp_path / "t", "-o", tmp_path / "store")
    assert scored.returncode == 0, scored.stderr
    checked = run("check", tmp_path / "t")
    assert checked.returncode == 0, checked.stdout


def test_unused_lines_are_reported_with_their_place_and_exit_1(tmp_path):
    source = tmp_path / "wire.jsonl"
    source.write_text('{"jsonrpc":"2.0","id":1,"method":"ping"}\noops\noops\n')
    done = run("import", "jsonrpc", source, "-o", tmp_path / "t")
    assert done.returncode == 1
    assert f"{source}:2: 2 lines not used: neither JSON nor an envelope (lines 2-3)" in done.stderr
    assert "not used (" in done.stdout
    assert "% of the records); " in done.stdout


def test_a_log_without_mcp_traffic_exits_3(tmp_path):
    source = tmp_path / "x.har"
    source.write_text('{"log":{"version":"1.2","entries":[]}}')
    done = run("import", "auto", source, "-o", tmp_path / "t")
    assert done.returncode == 3
    assert "no MCP traffic found" in done.stderr
    assert done.stdout.endswith("; there is nothing to score\n")
    assert "next:" not in done.stdout


def test_fields_are_named_on_the_command_line(tmp_path):
    source = tmp_path / "wire.jsonl"
    source.write_text(styles.enveloped(events(TRACES / "time.jsonl")[:40]))
    names = "--time at --direction way --c2s out --s2c in --message inner.frame --session conn"
    done = run("import", "jsonrpc", source, "-o", tmp_path / "t", *names.split())
    assert done.returncode == 0, done.stderr
    report = json.loads(next((tmp_path / "t").glob("*.report.json")).read_text())
    assert report["notes"] == {}
    assert report["recordings"] == 2


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_documented_and_in_the_help(form):
    assert f"`{form}`" in (DOCS / "reference" / "import-formats.md").read_text()
    assert f"`{form}`" in (DOCS / "how-to" / "import-what-you-have.md").read_text()
    assert form in run("import", "--help").stdout
