"""Writes the keywords of each pattern into the rule files: every match contains one of them.

python -m tests.verdict.keywords

A pattern's keywords are those words that it requires which the fewest labelled texts contain, or
the longest if it reads results.
"""

import functools
import json
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mcptally.rules import parse
from mcptally.seeds.validation_logic.normalised_error import FILE, CategoryRule
from mcptally.verdict import classify, hidden_errors
from mcptally.verdict.rule_model import HiddenRule, TextRule, VerdictRule
from tests.verdict.pattern_keywords import length, required

RULES = Path(classify.__file__).parents[1] / "rules"
LABELLED = [Path(__file__).parent / name for name in ("natural.jsonl", "labels/errors.jsonl")]
LANGUAGES = RULES.parent / "verdict" / "languages.toml"
FILES = {
    **dict.fromkeys(classify.FILES, VerdictRule),
    **dict.fromkeys(hidden_errors.FILES, HiddenRule),
    FILE: CategoryRule,
}
ROW = re.compile(r"(?ms)^\[\[rule\]\]\n.*?(?=^\[\[rule\]\]|\Z)")
KEYWORDS = re.compile(r"(?m)^keywords = \[(?:\n(?:  .*\n)*\]|.*\])\n")


@functools.cache
def texts() -> list[str]:
    """Return the labelled texts in lower case."""
    lines = (line for path in LABELLED for line in path.read_text("utf-8").splitlines())
    return sorted({json.loads(line)["text"].lower() for line in lines})


@functools.cache
def with_word(word: str) -> frozenset[int]:
    """Return the numbers of the labelled texts that contain a word."""
    return frozenset(number for number, text in enumerate(texts()) if word in text)


def rarity(words: Iterable[str]) -> tuple[int, int]:
    """Rank words by how few labelled texts contain one of them, then by length."""
    found = frozenset[int]().union(*(with_word(word.lower()) for word in words))
    return -len(found), length(words)


def derived(pattern: str, rank: Callable[[Iterable[str]], Any] = rarity) -> tuple[str, ...]:
    """Return the keywords of a pattern; none if one of its branches has none."""
    words: set[str] = set()
    for branch in required(pattern, rank) or ():
        words |= max(branch, key=rank)
    # A word that contains another one is found with it.
    return tuple(sorted(w for w in words if not any(o != w and o in w for o in words)))


def of_matches(rule: TextRule) -> tuple[tuple[str, ...], ...]:
    """Return the keywords of a rule's patterns, without those of its class of words."""
    rank = length if isinstance(rule, HiddenRule) else rarity
    keywords = tuple(derived(pattern, rank) for pattern in rule.matches)
    return keywords if any(keywords) else ()


def in_toml(keywords: tuple[tuple[str, ...], ...]) -> str:
    if not keywords:
        return ""
    rows = [json.dumps(each, ensure_ascii=False) for each in keywords]
    if len(rows) == 1:
        return f"keywords = [{rows[0]}]\n"
    return "keywords = [\n" + "".join(f"  {row},\n" for row in rows) + "]\n"


def with_keywords(text: str, kind: type[TextRule]) -> str:
    """Return the text of a rule file with the rules' keywords."""
    text = KEYWORDS.sub("", text)
    rules = {rule.id: rule for rule in parse(kind, tomllib.loads(text), where="rules")}

    def row(match: re.Match[str]) -> str:
        rule = rules[re.search(r'(?m)^id = "(.*)"', match[0])[1]]
        return re.sub(r"(?m)^(?=fires = )", lambda _: in_toml(of_matches(rule)), match[0], count=1)

    return ROW.sub(row, text)


def languages_with_keywords(text: str) -> str:
    """Return the text of languages.toml with the keywords of its words."""
    bare = re.sub(r"(?m)^\[\w+\.keywords\]\n(?:\w+ = .*\n)*\n?", "", text)

    def section(match: re.Match[str]) -> str:
        name = match[1]
        rows = [
            f"{kind} = {json.dumps(derived('|'.join(words)), ensure_ascii=False)}\n"
            for kind, words in tables[name].items()
            if derived("|".join(words))
        ]
        return f"{match[0].rstrip()}\n\n[{name}.keywords]\n{''.join(rows)}\n"

    tables = tomllib.loads(bare)
    return re.sub(r"(?m)^\[(\w+)\]\n(?:(?!\[).*\n)+", section, bare).rstrip() + "\n"


if __name__ == "__main__":
    for name, kind in FILES.items():
        path = RULES / name
        path.write_text(with_keywords(path.read_text("utf-8"), kind), encoding="utf-8")
    LANGUAGES.write_text(languages_with_keywords(LANGUAGES.read_text("utf-8")), encoding="utf-8")
