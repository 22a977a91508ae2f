"""The pages about the seed score name existing rules, and their examples load."""

import fnmatch
import re
from pathlib import Path

import pytest

from mcptally.seeds.inspector import scenario_file
from mcptally.seeds.inspector.columns import COLUMNS
from mcptally.seeds.inspector.rows import FILES, rule_rows

DOCS = Path(__file__).resolve().parents[3] / "docs"
IDS = {row.id for interpretation in FILES for row in rule_rows(interpretation).rows}


@pytest.mark.parametrize("page", ["reference/seed-documents.md", "design/seeds.md"])
def test_every_rule_that_a_page_names_exists(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:seed|inspector)\.[a-z0-9.*-]+)`", text)
    modules = {"seed.columns.score"}
    lost = [name for name in named if name not in modules and not fnmatch.filter(IDS, name)]
    assert lost == []


def test_every_column_on_the_page_of_seed_documents_exists():
    text = (DOCS / "reference" / "seed-documents.md").read_text(encoding="utf-8")
    others = {"seed_scores", "seed_scenario_status", "inspector_scenario_status"}
    named = set(re.findall(r"`((?:seed|inspector)_[a-z_]+)`", text))
    assert named - others <= set(COLUMNS)


def test_the_examples_of_a_scenarios_file_load(tmp_path):
    text = (DOCS / "reference" / "seed-documents.md").read_text(encoding="utf-8")
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "s.toml").write_text(toml, encoding="utf-8")
    assert [entry.scenario for entry in scenario_file.load_scenarios(tmp_path / "s.toml")] == [
        *("error_case", "boundary")
    ]
    (inline,) = re.findall(r"`(\[\{.*?\}\])`", text)
    (tmp_path / "s.json").write_text(inline, encoding="utf-8")
    assert len(scenario_file.load_scenarios(tmp_path / "s.json")) == 1
