"""Exports the functions of seeds/ that pipeline/ uses; pipeline/ imports only this module.

Some stages need only a partition (`argument_combinations`, `gather_validations`,
`count_error_forms`). Others also need facts from the whole archive: `assign_scenarios`,
`add_seed_scores`, `normalise_errors`, `with_validations`, `contract_findings`, `contract_tables`.
`archive_findings` needs only those.
"""

import polars as pl

from mcptally.rules import findings as rule_findings
from mcptally.seeds import results
from mcptally.seeds.inspector.columns import add_seed_scores
from mcptally.seeds.inspector.scenario import (
    argument_combinations,
    assign_scenarios,
    rare_combinations,
    with_combination,
)
from mcptally.seeds.inspector.scenario_file import ScenarioEntry, load_scenarios
from mcptally.seeds.redmine import error_forms
from mcptally.seeds.redmine.error_forms import count_error_forms, error_form
from mcptally.seeds.redmine.expected_xml import FORM_COUNTS, xml_servers
from mcptally.seeds.validation_logic import arguments
from mcptally.seeds.validation_logic.normalised_error import normalise_errors
from mcptally.seeds.validation_protocol import calls as validation_calls
from mcptally.seeds.validation_protocol.calls import (
    PREDICTION_COLUMNS,
    PREDICTION_WINDOW_NS,
    gather_validations,
    with_validations,
)
from mcptally.tables.declaration import Table
from mcptally.tables.ui_steps import UiSteps
from mcptally.tables.validations import Validations

__all__ = [
    "FORM_COUNTS",
    "PREDICTION_COLUMNS",
    "PREDICTION_WINDOW_NS",
    "ScenarioEntry",
    "add_seed_scores",
    "archive_findings",
    "argument_combinations",
    "assign_scenarios",
    "contract_findings",
    "contract_tables",
    "count_error_forms",
    "error_form",
    "gather_validations",
    "load_scenarios",
    "normalise_errors",
    "rare_combinations",
    "with_combination",
    "with_validations",
    "xml_servers",
]


def contract_findings(
    calls: pl.DataFrame, messages: pl.DataFrame, definitions: pl.DataFrame, forms: pl.DataFrame
) -> tuple[pl.DataFrame, dict[type[Table], pl.DataFrame]]:
    """Return the seed documents' findings about scored `calls`, and tables of UI test runs."""
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
    """Return the seed documents' tables for a partition.

    Args:
        ui_tables: the second value of `contract_findings`.
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
    """Return findings about servers, which need facts from the whole archive.

    Args:
        listed: the tools that servers listed.
        definitions: the tools' definitions.
        form_counts: rows of `count_error_forms` of all partitions.
    """
    declared = validation_calls.declaration_findings(listed, definitions)
    return rule_findings.concat_findings([*declared, error_forms.form_findings(form_counts)])
