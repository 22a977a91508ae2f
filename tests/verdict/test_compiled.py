"""`rules/compiled.json` has what is derived from the rule files."""

import tomllib

import pytest

from mcptally import rules
from mcptally.verdict import match, regex_literals
from tests.verdict.compiled import PACKAGE, PATH, compiled_text


def test_the_compiled_rules_are_up_to_date():
    written = PATH.read_text(encoding="utf-8")
    assert written == compiled_text(), "run: python -m tests.verdict.compiled"


@pytest.fixture
def other_compiled(monkeypatch: pytest.MonkeyPatch):
    """A function that replaces the content of `compiled.json`."""

    def replace(content: rules.Compiled) -> None:
        monkeypatch.setattr(rules, "compiled", lambda: content)

    yield replace
    match._derived_keywords.cache_clear()


def test_a_rule_file_that_changed_since_is_read_itself(other_compiled):
    name = "rules/leaks.toml"
    table = tomllib.loads((PACKAGE / name).read_text(encoding="utf-8"))
    old = {name: rules.CompiledFile(sha256="0" * 64, table=b"{}")}
    other_compiled(rules.Compiled(toml=old, parser="", keywords={}))
    assert rules.read_toml(name) == table


def test_keywords_of_another_parser_are_not_used(other_compiled):
    wrong = {"abc": ((frozenset({"wrong"}),),)}
    other_compiled(rules.Compiled(toml={}, parser="0" * 64, keywords=wrong))
    match._derived_keywords.cache_clear()
    assert match._keywords((("abc",),)).words == ["abc"]


def test_compiled_keywords_are_those_of_the_parser():
    for pattern, words in list(rules.compiled().keywords.items())[::50]:
        assert regex_literals.required(pattern) == words
