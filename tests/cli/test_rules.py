"""`mcptally rules`, as a person and as a program sees it."""

import json

from mcptally.rules.findings import finding_rules
from mcptally.rules.reference_page import (
    FILES,
    _position,
    find_rules,
    render_reference_page,
    rule_files,
)
from tests.commands import run


def test_every_rule_of_every_file_is_listed_once():
    ids = [line.split()[0] for line in run("rules").stdout.splitlines()]
    assert len(ids) == len(set(ids)) == sum(len(file.rows) for file in rule_files())
    assert set(finding_rules()) <= set(ids)


def test_json_gives_the_rows_as_they_are_written():
    (row,) = json.loads(run("rules", "--format", "json", "protocol.batch").stdout)
    assert row["id"] == "protocol.batch"
    assert (row["since"], row["apart_from"]) == ("2024-11-05", ["2025-03-26"])
    assert row["fires"]
    assert row["silent"]


def test_one_rule_is_shown_in_full_and_a_group_in_lines():
    shown = run("rules", "protocol.null_id").stdout
    for words in ("title", "severity", "error", "source", "fires", "silent", '"id":null'):
        assert words in shown
    lines = run("rules", "protocol").stdout.splitlines()
    assert len(lines) > 40
    assert all(line.startswith("protocol.") for line in lines)


def test_markdown_without_an_id_is_the_reference_page():
    assert run("rules", "--format", "markdown").stdout == render_reference_page()


def test_every_rule_file_has_its_place_on_the_page_and_says_what_it_is():
    for file in rule_files():
        assert _position(file.name)[0] < len(FILES), f"{file.name} is not in page.FILES"
        assert file.about, f"{file.name} begins with no comment"
    assert {row["id"] for row in find_rules()} >= set(finding_rules())
