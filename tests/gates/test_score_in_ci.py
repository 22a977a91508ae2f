"""The script of the GitHub action writes reports, a summary, a badge and one comment."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import mcptally as mt
from tests.transcripts import call, exchange, opened, text, write

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".github" / "actions" / "mcptally" / "score-in-ci"

GH = """
# Stands for GitHub's program: lists the comments of a file, and notes what it was asked to do.
case "$*" in
  *--paginate*) cat comments ;;
  *) echo "$*" >>asked ;;
esac
"""


def program(path, script):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def ci(tmp_path):
    """Runs the script as a CI job does, with a `gh` that keeps comments in files."""
    programs = tmp_path / "bin"
    program(programs / "gh", GH)

    def run(traces, **settings):
        path = (
            f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        )
        job = {"PATH": path, "GITHUB_STEP_SUMMARY": "step.md", "GITHUB_REPOSITORY": "jo/shop"}
        return subprocess.run(
            ["bash", SCRIPT, traces],
            cwd=tmp_path,
            env={**os.environ, **job, **settings},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    return run


def record(folder, *, fails):
    folder.mkdir()
    words = "TypeError: x is None @jo" if fails else "3 EUR"
    for n in range(12):
        talk = [
            each for i in range(4) for each in (call(i, "price"), text(i, words, isError=fails))
        ]
        events = [opened(f"r{n}", server="shop"), *exchange(*talk, recording=f"r{n}")]
        write(folder / f"{n}.jsonl", events)


def test_a_failed_gate_fails_the_job_and_all_reports_say_so(ci, tmp_path):
    record(tmp_path / "before", fails=False)
    record(tmp_path / "traces", fails=True)
    (tmp_path / "comments").write_text("41\n57\n")
    mt.score(tmp_path / "before", out=tmp_path / "base")
    settings = {"MCPTALLY_FAIL_ON": "failure_rate > 20%\n", "MCPTALLY_WORSE": "worse"}
    done = ci("traces", MCPTALLY_BASE="base", MCPTALLY_PR="7", **settings)
    assert done.returncode == 1, done.stderr
    out = tmp_path / "mcptally-results"
    summary = (out / "summary.md").read_text()
    gates, compared = summary.split("### Compared with the base")
    assert "FAILED shop/price: failure_rate" in gates
    assert "FAILED " in compared
    assert (tmp_path / "step.md").read_text() == summary
    assert "@jo" not in summary
    assert b"<failure " in (out / "mcptally.xml").read_bytes()
    assert json.loads((out / "mcptally.sarif").read_text())["runs"][0]["results"]
    assert json.loads((out / "badge.json").read_text()) == {
        "schemaVersion": 1, "label": "MCP tools", "message": "0 % of calls right", "color": "red",
    }  # fmt: skip
    assert "<html" in (out / "report.html").read_text()
    assert "PATCH repos/jo/shop/issues/comments/41 " in (tmp_path / "asked").read_text()


@pytest.mark.parametrize("worse", [0, 1])
def test_a_change_for_the_worse_fails_the_job_and_a_first_run_writes_a_comment(ci, tmp_path, worse):
    """The commands do nothing here but exit with a code."""
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "store.json").touch()
    (tmp_path / "comments").touch()
    program(
        tmp_path / "bin" / "mcptally",
        f"case $1 in compare) exit {worse} ;; query) echo '[{{}}]' ;; esac",
    )
    assert ci("traces", MCPTALLY_BASE="base", MCPTALLY_PR="7").returncode == worse
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("api --silent -X POST repos/jo/shop/issues/7/comments -F body=@")


@pytest.mark.parametrize(
    ("traces", "gate", "code"), [("missing", "", 3), ("traces", "no such gate", 2)]
)
def test_wrong_settings_end_the_job_with_their_own_code(ci, tmp_path, traces, gate, code):
    record(tmp_path / "traces", fails=False)
    assert ci(traces, MCPTALLY_FAIL_ON=gate).returncode == code
