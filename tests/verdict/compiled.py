"""Writes `rules/compiled.json`: the rule files as JSON, and the keywords of the rules' patterns.

python -m tests.verdict.compiled
"""

import hashlib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path

import mcptally
from mcptally.rules import COMPILED
from mcptally.seeds.validation_logic import normalised_error
from mcptally.verdict import classify, hidden_errors, match, regex_literals

PACKAGE = Path(mcptally.__file__).parent
PATH = PACKAGE / "rules" / COMPILED


def compiled_text() -> str:
    """The content of the file, with one line per rule file and per pattern."""
    paths = sorted(PACKAGE.rglob("*.toml"))
    files = {path.relative_to(PACKAGE).as_posix(): path.read_bytes() for path in paths}
    toml = {
        name: {"sha256": _digest(data), "table": tomllib.loads(data.decode())}
        for name, data in files.items()
    }
    rules = (
        *classify.failure_rules(),
        *hidden_errors.hidden_error_rules(),
        *normalised_error.category_rules(),
    )
    patterns = {each for rule in rules for each in match.patterns_of(rule) if each}
    keywords = {each: _sorted(regex_literals.required(each)) for each in sorted(patterns)}
    parser = _digest(Path(regex_literals.__file__).read_bytes())
    return (
        f'{{"toml": {_lines(toml)},\n"parser": {json.dumps(parser)},\n'
        f'"keywords": {_lines(keywords)}}}\n'
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _sorted(branches: Sequence[regex_literals.Branch] | None) -> list[list[list[str]]] | None:
    if branches is None:
        return None
    return [[sorted(words) for words in branch] for branch in branches]


def _lines(values: dict) -> str:
    rows = (f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in values.items())
    return "{\n" + ",\n".join(rows) + "\n}"


if __name__ == "__main__":
    PATH.write_text(compiled_text(), encoding="utf-8")
    print(PATH)
