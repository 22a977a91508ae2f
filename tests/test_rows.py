"""`each_row` checks every row and names those that fail."""

from pathlib import Path

import pytest

from tests.rows import each_row


@each_row("number, word", [(1, "one"), pytest.param(2, "two", id="a pair"), (3, "three")])
@each_row("factor", [1, 10])
def check(number: int, word: str, factor: int, tmp_path: Path):
    (tmp_path / "new").touch(exist_ok=False)
    assert (number * factor, word) != (20, "two")
    if number == 3:
        pytest.skip("a row cannot be skipped")


def test_every_row_is_checked_and_those_that_fail_are_named(tmp_path: Path):
    with pytest.RaisesGroup(
        pytest.RaisesGroup(AssertionError),
        pytest.RaisesGroup(pytest.skip.Exception, pytest.skip.Exception),
    ) as caught:
        check(tmp_path=tmp_path)
    first, second = caught.value.exceptions
    assert first.__notes__ == ["row 1: a pair"]
    assert first.exceptions[0].__notes__ == ["row 1: (10,)"]
    assert second.__notes__ == ["row 2: (3, 'three')"]
    assert str(caught.value).startswith("2 of 3 rows failed")


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        ("one", []),
        ("one", [pytest.param(1, marks=pytest.mark.slow)]),
        ("one, two", [(1, 2), (1, 2, 3)]),
    ],
)
def test_a_table_that_would_check_less_than_it_says_is_refused(names: str, rows: list[object]):
    with pytest.raises((AssertionError, ValueError)):
        each_row(names, rows)
