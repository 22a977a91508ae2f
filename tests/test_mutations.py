"""The mutations in mutations.toml still apply to the code."""

import ast
from pathlib import Path

from tests import mutations

TESTS = Path(__file__).parent


def test_every_mutation_still_breaks_one_place_and_names_tests_that_there_are():
    rows = mutations.mutations()
    assert len(rows) >= 30
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        text = (mutations.CHECKOUT / mutations.PACKAGE / row.file).read_text(encoding="utf-8")
        broken = row.broken(text)
        assert broken != text, row.name
        if row.file.endswith(".py"):
            ast.parse(broken)
        assert row.tests, row.name
        for test in row.tests:
            file, _, name = test.partition("::")
            defined = f"def {name}(" if name else "def test_"
            assert defined in (TESTS / file).read_text(encoding="utf-8"), test
