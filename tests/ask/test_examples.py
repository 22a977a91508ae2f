"""The examples of the how-to about queries run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import mcptally as mt
from tests.transcripts import c2s, call, opened, s2c, text, write

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "query.md"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
PYTHON = [code for kind, code in BLOCKS if kind == "python"]
COMMANDS = [
    line.removeprefix("$ ")
    for kind, code in BLOCKS
    if kind == "console"
    for line in code.splitlines()
    if line.startswith("$ mcptally")
]
SAID = (
    "['server', 'tool']\n[('read', 1)]\n2\n[(2,)]\n",
    "3\n",
    "no tool is called 'raed'; did you mean read?\n",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    for name in ("store", "store-of-tuesday"):
        for server in ("demo", "git"):
            if (name, server) == ("store-of-tuesday", "git"):
                continue
            events = [
                opened(f"{name}-{server}", server=server),
                c2s(1, call(1, "read"), f"{name}-{server}"),
                s2c(2, text(1, "fine"), f"{name}-{server}"),
            ]
            write(folder / f"{name}-{server}.jsonl", events)
        mt.score(sorted(folder.glob(f"{name}-[dg]*.jsonl")), out=folder / name)
    return folder


@pytest.mark.parametrize(("code", "said"), [*zip(PYTHON, SAID, strict=True)])
def test_python_says_what_the_page_promises(folder: Path, code: str, said: str):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == said


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(folder: Path, command: str):
    words = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
