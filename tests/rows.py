"""Checks the rows of a table in one test.

pytest takes about 3 ms for each test, more than the check of a row. With `each_row` instead of
`pytest.mark.parametrize`, a table takes this once.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

_Param = type(pytest.param())
_Failure = (Exception, BaseExceptionGroup, pytest.fail.Exception, pytest.skip.Exception)


def each_row(
    names: str | tuple[str, ...],
    rows: Iterable[Any],
    ids: Callable[[Any], object] | Iterable[object] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the decorated test for each row; the arguments are those of `parametrize`.

    All rows are checked. The failure names each row that fails by its number (from 0) and by its
    id or values. Each row has a `tmp_path` of its own; the rows share the other fixtures, so the
    test may change none of them.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    params = [row if isinstance(row, _Param) else _param(row, len(columns)) for row in rows]
    assert params, "there are no rows"
    assert not any(param.marks for param in params), "a row cannot have marks"
    if ids is None:
        labels = [param.id or param.values for param in params]
    elif callable(ids):
        labels = [[ids(value) for value in param.values] for param in params]
    else:
        labels = list(ids)
    table = [dict(zip(columns, param.values, strict=True)) for param in params]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def check_rows(**fixtures: Any) -> None:
            errors = []
            for number, (label, row) in enumerate(zip(labels, table, strict=True)):
                own = {}
                if "tmp_path" in fixtures:
                    own["tmp_path"] = fixtures["tmp_path"] / str(number)
                    own["tmp_path"].mkdir()
                try:
                    test(**fixtures | own | row)
                except _Failure as error:
                    error.add_note(f"row {number}: {label}")
                    errors.append(error)
            if errors:
                raise BaseExceptionGroup(f"{len(errors)} of {len(table)} rows failed", errors)

        signature = inspect.signature(test)
        check_rows.__signature__ = signature.replace(
            parameters=[each for each in signature.parameters.values() if each.name not in columns]
        )
        return check_rows

    return decorate


def _param(row: Any, count: int) -> Any:
    """A row as `pytest.param`."""
    return pytest.param(row) if count == 1 else pytest.param(*row)
