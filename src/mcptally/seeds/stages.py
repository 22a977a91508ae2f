"""Where the contracts stand in the line: what is found in a partition, and in the archive."""

import polars as pl

from mcptally.rules import findings as rule_findings
from mcptally.seeds import results
from mcptally.seeds.redmine import error_forms
from mcptally.seeds.validation_logic import arguments
from mcptally.seeds.validation_protocol import calls as validation_calls
from mcptally.tables.declaration import Table
from mcptally.tables.ui_steps import UiSteps
from mcptally.tables.validations import Validations


def find(
    calls: pl.DataFrame, messages: pl.DataFrame, definitions: pl.DataFrame
) -> tuple[pl.DataFrame, dict[type[Table], pl.DataFrame]]:
    """Findings about the contracts of judged `calls`, and the tables of their UI tests."""
    found, tests = results.find(calls)
    asked = [
        arguments.find(calls, definitions),
        *validation_calls.find(calls, messages, definitions),
    ]
    return rule_findings.together([*found, *asked]), tests


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
    return {Validations: validation_calls.table(validations, calls, payloads=payloads), **tests}


def find_in_archive(
    listed: pl.DataFrame, definitions: pl.DataFrame, shapes: pl.DataFrame
) -> pl.DataFrame:
    """Findings about servers, from what the whole archive knows."""
    declared = validation_calls.find_declared(listed, definitions)
    return rule_findings.together([*declared, error_forms.find(shapes)])
