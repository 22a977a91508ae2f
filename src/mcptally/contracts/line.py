"""Where the contracts stand in the line: what is found in a partition, and in the archive."""

import polars as pl

from mcptally import judge
from mcptally.contracts import error_shapes, given, results, validation
from mcptally.schema import Table, UiSteps, Validations


def find(
    calls: pl.DataFrame, messages: pl.DataFrame, definitions: pl.DataFrame
) -> tuple[pl.DataFrame, dict[type[Table], pl.DataFrame]]:
    """Findings about the contracts of judged `calls`, and the tables of their UI tests."""
    found, tests = results.find(calls)
    asked = [given.find(calls, definitions), *validation.find(calls, messages, definitions)]
    return judge.together([*found, *asked]), tests


def tables(
    tests: dict[type[Table], pl.DataFrame],
    calls: pl.DataFrame,
    validations: pl.DataFrame,
    *,
    payloads: bool,
) -> dict[type[Table], pl.DataFrame]:
    """The tables of a partition that are about contracts; `validations` are its own."""
    if not payloads:
        hidden = tests[UiSteps].with_columns(input=pl.lit(None, pl.String))
        tests = tests | {UiSteps: hidden}
    return {Validations: validation.table(validations, calls, payloads=payloads), **tests}


def find_in_archive(
    listed: pl.DataFrame, definitions: pl.DataFrame, shapes: pl.DataFrame
) -> pl.DataFrame:
    """Findings about servers, from what the whole archive knows."""
    declared = validation.find_declared(listed, definitions)
    return judge.together([*declared, error_shapes.find(shapes)])
