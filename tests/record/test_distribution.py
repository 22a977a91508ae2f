"""The wheel of mcptally-recorder records, checks and redacts without the rest of mcptally."""

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.shared_folder import shared_folder

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RECORDER = ROOT / ".recorder"
ECHO = [sys.executable, "-c", "import sys; [print(line, end='', flush=True) for line in sys.stdin]"]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A folder with the wheel's files, in which packages that it does not need are broken."""

    def build(folder):
        (wheel,) = WheelBuilder(str(RECORDER)).build(
            directory=str(folder / "dist"), versions=["standard"]
        )
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "site")
        for name in ("polars", "pyarrow", "duckdb", "mcp", "numpy", "rich", "blake3"):
            (folder / "site" / f"{name}.py").write_text(f"raise ImportError('no {name} here')")

    return shared_folder(tmp_path_factory, "recorder-wheel", build) / "site"


def run(unpacked, *arguments, stdin=b""):
    return subprocess.run(
        [sys.executable, *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
    )


def mcptally(unpacked, *arguments, stdin=b""):
    return run(unpacked, "-m", "mcptally", *map(str, arguments), stdin=stdin)


def test_the_recorder_alone_records_checks_and_redacts(unpacked, tmp_path):
    frame = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"password":"hunter2hunter2"}}\n'
    traces = tmp_path / "traces"
    done = mcptally(
        unpacked, "record", "--redact", "none", "--out", traces, "--", *ECHO, stdin=frame
    )
    assert (done.returncode, done.stdout) == (0, frame), done.stderr
    checked = mcptally(unpacked, "check", traces, "--format", "json")
    assert checked.returncode == 0, checked.stderr
    assert [each["verdict"] for each in json.loads(checked.stdout)["recordings"]] == ["whole"]
    copied = mcptally(unpacked, "redact", traces, "-o", tmp_path / "copies")
    assert copied.returncode == 0, copied.stderr
    assert b"hunter2" in b"".join(path.read_bytes() for path in traces.iterdir())
    assert b"hunter2" not in b"".join(p.read_bytes() for p in (tmp_path / "copies").iterdir())


def test_the_recorder_alone_adds_itself_to_a_configuration(unpacked, tmp_path):
    config = tmp_path / ".mcp.json"
    config.write_text('{"mcpServers": {"docs": {"command": "docs-server"}}}')
    done = mcptally(unpacked, "wrap", config)
    assert done.returncode == 0, done.stderr
    assert "record" in json.loads(config.read_text())["mcpServers"]["docs"]["args"]


@pytest.mark.parametrize("arguments", [["score", "traces", "-o", "store"], ["."]])
def test_the_recorder_alone_says_what_to_install_for_other_commands(unpacked, arguments):
    done = mcptally(unpacked, *arguments)
    assert done.returncode == 2
    assert b"is not part of mcptally-recorder; install mcptally" in done.stderr


def test_the_recorder_alone_says_what_to_install_for_other_functions(unpacked):
    done = run(unpacked, "-c", "import mcptally as mt; mt.check; mt.score")
    *_, said = done.stderr.splitlines()
    assert b"ImportError: mcptally.score is not part of mcptally-recorder; install mc" in said


def test_the_help_of_the_recorder_alone_lists_its_commands_only(unpacked):
    lines = mcptally(unpacked, "--help").stdout.decode().partition("Commands:")[2].splitlines()
    assert [line.split()[0] for line in lines if line] == ["record", "wrap", "check", "redact"]


def test_the_recorder_requires_the_same_versions_as_mcptally():
    def project(folder):
        return tomllib.loads((folder / "pyproject.toml").read_text())["project"]

    whole, recorder = project(ROOT), project(RECORDER)
    assert set(recorder["dependencies"]) <= set(whole["dependencies"])
    assert recorder["requires-python"] == whole["requires-python"]
    assert set(recorder["classifiers"]) <= set(whole["classifiers"])
