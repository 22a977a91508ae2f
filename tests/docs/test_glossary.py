"""Headings, titles, columns, help texts and messages use the terms of the glossary."""

import re

import click
import pytest

from mcptally.analytics.views import question_titles
from mcptally.cli import cli
from mcptally.rules.reference_page import find_rules
from mcptally.tables.all_tables import TABLES
from tests.docs.blocks import DOCS, PAGES, ROOT, prose

GLOSSARY = DOCS / "reference" / "glossary.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in GLOSSARY.read_text(encoding="utf-8").partition("## Outcomes")[0].splitlines()
    if re.match(r"\| (?!term |-)", line)
]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """What users see first of every page, question, table, rule, command and error."""
    messages = (ROOT / "tests" / "cli" / "messages.txt").read_text(encoding="utf-8")
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in cli.list_commands(context)]
    helped = [*commands, *(option for command in commands for option in command.params)]
    pages = "".join(map(prose, PAGES))
    return [
        *re.findall(r"^#+ (.*)$", pages, flags=re.MULTILINE),
        *question_titles().values(),
        *(f"{name}: {col.meaning}" for table in TABLES for name, col in table.columns().items()),
        *(rule["title"] for rule in find_rules()),
        *(getattr(each, "help", None) or "" for each in helped),
        *re.findall(r"^\[\d+\] .*", messages, flags=re.MULTILINE),
    ]


def test_the_glossary_has_about_25_terms():
    assert 20 <= len(ROWS) <= 30


@pytest.mark.parametrize(("term", "avoided"), [(row[0], row[2]) for row in ROWS])
def test_a_term_is_used_and_no_other_word_for_it(texts, term, avoided):
    assert any(re.search(rf"\b{term}", text, re.IGNORECASE) for text in texts)
    for words in avoided.split(", "):
        used = [text for text in texts if re.search(rf"\b{words}", text, re.IGNORECASE)]
        assert used == [], words
