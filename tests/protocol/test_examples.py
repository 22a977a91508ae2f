"""Every rule that makes findings, by its own examples, through the whole line."""

import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import mcptally
from mcptally.errors import RuleError
from mcptally.rules.findings import finding_rules, require_rules, rule_of
from mcptally.tables.findings import Finding, findings_frame
from mcptally.transcript.files import Damage, lines
from tests.protocol.conversation import write

ALONE = {"$long-line", "$gone", "$bomb", "$more-than-memory"}
"""Files too large to make, or that are not there: tested in tests/hostile, and below."""

CASES = [
    (rule.id, kind, number, example)
    for rule in finding_rules().values()
    for kind in ("fires", "silent")
    for number, example in enumerate(getattr(rule, kind))
    if example not in ALONE
]


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """What one run over all examples found: `file` says of which example."""
    folder = tmp_path_factory.mktemp("examples")
    for rule, kind, number, example in CASES:
        name = f"{rule}.{kind}.{number}"
        _write(folder, name, example)
    mcptally.score([folder / "archive"], out=folder / "store")
    found = pl.read_parquet(folder / "store" / "findings" / "**" / "*.parquet")
    example = pl.coalesce(pl.col("file").str.extract(r"([^/\\]*)\.jsonl"), "server")
    return found.with_columns(example=example.str.replace(r"\.copy$", ""))


def _write(folder: Path, name: str, example: str) -> None:
    place = folder / "archive"
    place.mkdir(exist_ok=True)
    write(example, place / f"{name}.x", name)


@pytest.mark.parametrize(("rule", "kind", "number", "example"), CASES)
def test_a_rule_fires_on_its_examples_and_stays_silent_on_the_others(
    findings: pl.DataFrame, rule: str, kind: str, number: int, example: str
) -> None:
    mine = findings.filter(pl.col("example") == f"{rule}.{kind}.{number}")
    rules = set(mine.get_column("rule"))
    assert (rule in rules) == (kind == "fires"), (example, sorted(rules))


def test_a_finding_names_its_rule_severity_and_place(findings: pl.DataFrame) -> None:
    assert findings.height
    for rule, severity, about in findings.select("rule", "severity", "about").unique().iter_rows():
        assert (severity, about) == (rule_of(rule).severity, rule_of(rule).about)
    assert findings.get_column("message").null_count() == 0
    placed = findings.filter(pl.col("about").is_in(["message", "call"]))
    assert placed.select(pl.col("file", "recording", "seq").null_count()).sum_horizontal()[0] == 0


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n' + b"x" * (9 << 20) + b'\n{"b":2}\n')
    runs = list(lines(path, max_line=1000))
    assert [r.rule for r in runs if isinstance(r, Damage)] == ["archive.line_too_long"]


def test_a_finding_without_a_rule_is_impossible() -> None:
    stray = findings_frame([Finding("protocol.no_such", "info", "file", "x")])
    with pytest.raises(RuleError, match=r"no rule has the id 'protocol\.no_such'"):
        require_rules(stray)
    with pytest.raises(RuleError, match=r"did you mean protocol\.batch"):
        rule_of("protocol.batsh")


OURS = ("archive", "transcript", "protocol", "pairing", "schema", "definition", "leak")
"""Groups of ids that are written out in code; others are made from their rows."""


def _ids_in_code() -> Iterator[str]:
    folder = Path(mcptally.__file__).parent
    pattern = re.compile(rf'"((?:{"|".join(OURS)})\.[a-z0-9_]+)"')
    for path in folder.rglob("*.py"):
        found = pattern.findall(path.read_text(encoding="utf-8"))
        yield from (name for name in found if not name.endswith(".toml"))


def test_the_rules_are_those_that_code_finds() -> None:
    rows = {name for name in finding_rules() if name.split(".")[0] in OURS}
    assert set(_ids_in_code()) == rows
