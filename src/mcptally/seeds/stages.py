"""Runs the checks of the five seed documents on the calls of a partition or an archive."""

import polars as pl

from mcptally.rules import findings as rule_findings
from mcptally.seeds import results
from mcptally.seeds.redmine import error_forms
from mcptally.seeds.validation_logic import arguments
from mcptally.seeds.validation_protocol import calls as validation_calls
from mcptally.tables.declaration import Table
from mcptally.tables.ui_tests import UiSteps
from mcptally.tables.validations import Validations


def contract_findings(
    calls: pl.DataFrame, messages: pl.DataFrame, definitions: pl.DataFrame, forms: pl.DataFrame
) -> tuple[pl.DataFrame, dict[type[Table], pl.DataFrame]]:
    """Check scored calls against the seed documents; return findings and tables of UI test runs."""
    found, ui_tables = results.check_results(calls, definitions, forms)
    requests = [
        arguments.wrapped_findings(calls, definitions),
        *validation_calls.validation_findings(calls, messages, definitions),
    ]
    return rule_findings.concat_findings([*found, *requests]), ui_tables


def contract_tables(
    ui_tables: dict[type[Table], pl.DataFrame],
    calls: pl.DataFrame,
    validations: pl.DataFrame,
    *,
    payloads: bool,
) -> dict[type[Table], pl.DataFrame]:
    """Return the tables that the seed documents define for a partition.

    Args:
        ui_tables: the tables of UI test runs that `contract_findings` returns.
        calls: the scored calls of the partition.
        validations: the result of `gather_validations` for the partition.
        payloads: whether arguments and inputs are kept.
    """
    if not payloads:
        without_input = ui_tables[UiSteps].with_columns(input=pl.lit(None, pl.String))
        ui_tables = ui_tables | {UiSteps: without_input}
    table = validation_calls.validations_table(validations, calls, payloads=payloads)
    return {Validations: table, **ui_tables}


def archive_findings(
    listed: pl.DataFrame, definitions: pl.DataFrame, form_counts: pl.DataFrame
) -> pl.DataFrame:
    """Return the seed documents' findings about servers, which need facts from the whole archive.

    Args:
        listed: the `Listings` of the archive.
        definitions: the `Definitions` of the listed tools.
        form_counts: the `ErrorForms` of all partitions.
    """
    declared = validation_calls.declaration_findings(listed, definitions)
    return rule_findings.concat_findings([*declared, error_forms.form_findings(form_counts)])
