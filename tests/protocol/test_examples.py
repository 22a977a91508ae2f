"""Every rule for findings agrees with its examples, which run through the whole pipeline."""

import re
from pathlib import Path

import polars as pl
import pytest

import mcptally
from mcptally.errors import RuleError
from mcptally.rules.findings import finding_rule, finding_rules, require_known_rules
from mcptally.tables.findings import Finding, findings_frame
from tests.protocol.conversation import write

NOT_MADE = {"$long-line", "$gone", "$bomb", "$more-than-memory"}
"""Examples with a file that is missing or too large to make: tested below and in tests/hostile."""

CASES = [
    (rule.id, kind, number, example)
    for rule in finding_rules().values()
    for kind in ("fires", "silent")
    for number, example in enumerate(getattr(rule, kind))
    if example not in NOT_MADE
]


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """The findings of one run over all examples, with the name of the example."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "archive").mkdir()
    for rule, kind, number, example in CASES:
        name = f"{rule}.{kind}.{number}"
        write(example, folder / "archive" / f"{name}.x", name)
    mcptally.score([folder / "archive"], out=folder / "store")
    found = pl.read_parquet(folder / "store" / "findings" / "**" / "*.parquet")
    example = pl.coalesce(pl.col("file").str.extract(r"([^/\\]*)\.jsonl"), "server")
    return found.with_columns(example=example.str.replace(r"\.copy$", ""))


@pytest.mark.slow
def test_rules_fire_on_their_fires_examples_and_not_on_their_silent_examples(
    findings: pl.DataFrame,
) -> None:
    fired = set(findings.select("example", "rule").rows())
    wrong = [
        (rule, kind, example, sorted(name for place, name in fired if place == own))
        for rule, kind, number, example in CASES
        for own in [f"{rule}.{kind}.{number}"]
        if ((own, rule) in fired) != (kind == "fires")
    ]
    assert wrong == []


@pytest.mark.slow
def test_a_finding_has_the_severity_of_its_rule_and_a_place(findings: pl.DataFrame) -> None:
    assert findings.height
    for rule, severity, about in findings.select("rule", "severity", "about").unique().iter_rows():
        assert (severity, about) == (finding_rule(rule).severity, finding_rule(rule).about)
    assert findings.get_column("message").null_count() == 0
    placed = findings.filter(pl.col("about").is_in(["message", "call"]))
    assert placed.select(pl.col("file", "recording", "seq").null_count()).sum_horizontal()[0] == 0


def test_a_finding_of_an_unknown_rule_is_an_error() -> None:
    unknown = findings_frame([Finding("protocol.no_such", "info", "file", "x")])
    with pytest.raises(RuleError, match=r"no rule has the id 'protocol\.no_such'"):
        require_known_rules(unknown)
    with pytest.raises(RuleError, match=r"did you mean protocol\.batch"):
        finding_rule("protocol.batsh")


GROUPS_IN_CODE = ("archive", "transcript", "protocol", "pairing", "schema", "definition", "leak")
"""Groups of rules whose ids are in the code; ids of other groups are read from rule files."""


def test_code_applies_every_rule_and_no_rule_without_a_row() -> None:
    folder = Path(mcptally.__file__).parent
    # The package's own file has names of modules, such as `transcript.check`.
    files = [path for path in folder.rglob("*.py") if path != folder / "__init__.py"]
    code = "".join(path.read_text(encoding="utf-8") for path in files)
    ids = re.findall(rf'"((?:{"|".join(GROUPS_IN_CODE)})\.[a-z0-9_]+)"', code)
    rows = {name for name in finding_rules() if name.split(".")[0] in GROUPS_IN_CODE}
    assert {name for name in ids if not name.endswith(".toml")} == rows
