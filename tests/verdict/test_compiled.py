"""The build writes the rule files as JSON, and the program reads them from there."""

import shutil
from pathlib import Path

import msgspec
import pytest
from hatch_build import PACKAGE, write_compiled

import mcptally
from mcptally import rules

SOURCE = Path(mcptally.__file__).parent
TOML = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.toml"))


@pytest.fixture
def compiled(tmp_path: Path) -> dict[str, rules.CompiledFile]:
    for name in TOML:
        copy = tmp_path / PACKAGE / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / name, copy)
    (tmp_path / PACKAGE / "rules").mkdir(exist_ok=True)
    written = write_compiled(tmp_path)
    return msgspec.json.decode(written.read_bytes(), type=dict[str, rules.CompiledFile])


def test_the_json_of_the_build_equals_the_rule_files(monkeypatch: pytest.MonkeyPatch, compiled):
    assert sorted(compiled) == TOML
    monkeypatch.setattr(rules, "_compiled", dict)
    from_toml = {name: rules.read_toml(name) for name in TOML}
    monkeypatch.setattr(rules, "_compiled", lambda: compiled)
    assert {name: rules.read_toml(name) for name in TOML} == from_toml


def test_a_rule_file_that_changed_since_the_build_is_read_itself(
    monkeypatch: pytest.MonkeyPatch, compiled
):
    old = rules.CompiledFile(sha256="0" * 64, table=msgspec.Raw(b'{"rule": []}'))
    monkeypatch.setattr(rules, "_compiled", lambda: {**compiled, "rules/leaks.toml": old})
    assert rules.read_toml("rules/leaks.toml")["rule"]
