"""`mcptally rules`, as a person and as a program sees it."""

import json

from click.testing import CliRunner

from mcptally.cli import cli
from mcptally.rules.findings import finding_rules
from mcptally.rules.reference_page import (
    FILES,
    _position,
    find_rules,
    render_reference_page,
    rule_files,
)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["rules", *arguments], catch_exceptions=True)
    error = f"{result.exception}" if result.exception else ""
    return result.exit_code, result.output + error


def test_every_rule_of_every_file_is_listed_once():
    code, output = run()
    ids = [line.split()[0] for line in output.splitlines()]
    assert code == 0
    assert len(ids) == len(set(ids)) == sum(len(file.rows) for file in rule_files())
    assert set(finding_rules()) <= set(ids)


def test_json_gives_the_rows_as_they_are_written():
    code, output = run("--format", "json", "protocol.batch")
    (row,) = json.loads(output)
    assert code == 0
    assert row["id"] == "protocol.batch"
    assert (row["since"], row["apart_from"]) == ("2024-11-05", ["2025-03-26"])
    assert row["fires"]
    assert row["silent"]


def test_markdown_without_an_id_is_the_reference_page():
    assert run("--format", "markdown")[1] == render_reference_page()


def test_every_rule_file_has_its_place_on_the_page_and_says_what_it_is():
    for file in rule_files():
        assert _position(file.name)[0] < len(FILES), f"{file.name} is not in page.FILES"
        assert file.about, f"{file.name} begins with no comment"
    assert {row["id"] for row in find_rules()} >= set(finding_rules())
