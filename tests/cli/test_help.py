"""Help and shell completion of every command."""

import re

import click
import pytest

from mcptally.cli import cli
from mcptally.output.formats import ROWS
from tests.commands import run

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


def test_query_and_export_offer_the_same_formats_of_rows_and_name_each_others_formats():
    offered = {}
    for name, option in (("query", "form"), ("compare", "form"), ("export", "to")):
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        [kind] = [option_.type for option_ in command.params if option_.name == option]
        offered[name] = set(kind.choices)
    assert offered["query"] == offered["compare"] == set(ROWS) | {"table"}
    assert offered["export"] == set(ROWS) | {"otlp", "otlp-metrics", "har"}
    har = run("query", "store", "calls", "--format", "har")
    assert (har.returncode, "mcptally export STORE --to har" in har.stderr) == (2, True)
    table = run("export", "store", "--to", "table")
    assert (table.returncode, "only query and compare write 'table'" in table.stderr) == (2, True)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_comes_in_the_shells_own_language(monkeypatch: pytest.MonkeyPatch, shell: str):
    monkeypatch.setenv("_MCPTALLY_COMPLETE", f"{shell}_source")
    assert "_MCPTALLY_COMPLETE" in run().stdout


def completed(*words: str) -> list[str]:
    """Return the completions that bash gets for the last of these words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("_MCPTALLY_COMPLETE", "bash_complete")
        patch.setenv("COMP_WORDS", " ".join(words))
        patch.setenv("COMP_CWORD", str(len(words) - 1))
        done = run()
    assert "Traceback" not in done.stderr
    return [line.partition(",")[2] for line in done.stdout.split()]


def test_completion_knows_commands_options_and_questions():
    assert completed("mcptally", "qu") == ["query"]
    assert completed("mcptally", "scor", "--") == ["--version", "--help"]
    assert completed("mcptally", "query", "store", "tool_sc") == ["tool_scores"]
