"""Help and shell completion of every command."""

import os
import re
import subprocess
import sys
from typing import get_args

import click
import pytest

from mcptally.cli import cli, export, query
from mcptally.output import render
from mcptally.output.export import FORMATS

COMMANDS = cli.list_commands(click.Context(cli))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_in_a_sentence_what_it_does_and_shows_an_example(name: str):
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    text = command.get_help(click.Context(command, info_name=name))
    first = (command.help or "").split("\n\n")[0]
    assert first.endswith(".")
    examples = re.search(rf"^ *Examples?:\n +mcptally {name}\b", text, re.MULTILINE)
    assert examples, f"no `Example:` with a line that begins `mcptally {name}`\n{text}"


def test_the_formats_that_commands_offer_are_the_librarys():
    # Named twice, so that help needs none of the libraries that write them.
    assert get_args(render.Format) == query.FORMATS
    assert set(export.FORMATS) == set(FORMATS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_comes_in_the_shells_own_language(shell: str):
    env = {**os.environ, "_MCPTALLY_COMPLETE": f"{shell}_source"}
    code = "from mcptally.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
    )
    if shell == "bash" and "bash" in done.stderr.lower():
        pytest.skip("bash is too old to complete, or is not here")
    assert "_MCPTALLY_COMPLETE" in done.stdout


@pytest.mark.parametrize(
    ("line", "word", "offered"),
    [
        ("mcptally qu", 1, ["plain,query"]),
        ("mcptally scor --", 2, ["plain,--version", "plain,--help"]),
    ],
)
def test_completion_knows_the_commands(line: str, word: int, offered: list[str]):
    env = {
        **os.environ,
        "_MCPTALLY_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(word),
    }
    code = "from mcptally.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
    )
    assert done.stdout.split() == offered
    assert "Traceback" not in done.stderr
