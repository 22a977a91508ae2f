"""Declares the table `seed_scores`."""

from typing import Final

from mcptally.tables.calls import Calls
from mcptally.tables.column_types import BOOLEAN, FLOAT64, STRING, list_of
from mcptally.tables.declaration import Column, Table


class SeedScores(Table):
    """One row per call, with its assessment by the seed documents.

    Values are null for requests that are not tool calls.
    """

    name = "seed_scores"
    key = Calls.key

    call_id = Calls.call_id
    requested_at = Calls.requested_at
    server = Calls.server
    tool = Calls.tool
    scenario = Column(STRING, "`happy_path`, `edge_case`, `boundary` or `error_case`.")
    scenario_source = Column(STRING, "Where the scenario comes from: `arguments` or `given`.")
    error_shape = Column(
        STRING,
        "Form of a tool's error: `JSON-RPC error`, `isError, text`, `isError, JSON`, "
        "`isError, structuredContent`, `isError, nothing`, `text without isError`, "
        "`JSON without isError`; null where the reply has none of these forms.",
    )
    validated_by = Column(
        STRING,
        "Last call of the server's own validation for the same tool and arguments, in "
        "this session or, on this server, within the hour before.",
    )
    validated_as = Column(BOOLEAN, "Whether that validation accepted the arguments.")
    recording = Calls.recording
    session = Calls.session
    seq = Calls.seq
    index = Calls.index
    dir = Calls.dir


_FACTOR_MEANINGS: Final = {
    "mcp_code": "Factor 1: an MCP error code.",
    "business_pattern": "Factor 2: a phrase of business logic.",
    "http_status": "Factor 3: an HTTP status code.",
    "structured_error": "Factor 4: a structured error.",
    "validates_test_data": "Factor 5: refers to test data.",
    "validation_expected": "Factor 6: a tool that is expected to validate.",
}

_INTERPRETATIONS: Final = {
    "seed": "the seed document as written",
    "inspector": "the original program, exactly",
}


def _add_seed_columns() -> None:
    """Declare the columns of the seed score once for each interpretation."""
    columns = {
        "classification": Column(STRING, "Classification; null where the original program throws."),
        "confidence": Column(FLOAT64, "Confidence in the classification.", "percent"),
        "is_valid": Column(BOOLEAN, "Whether the response indicates a working tool."),
        "is_error": Column(BOOLEAN, "Whether the response is an error."),
        "issues": Column(list_of(STRING), "What is wrong with the response."),
        "evidence": Column(list_of(STRING), "Evidence for the classification."),
        "is_business_error": Column(BOOLEAN, "Whether an error is business logic."),
        "business_confidence": Column(FLOAT64, "Share of the points for business logic, 0 to 1."),
        "threshold": Column(FLOAT64, "Minimum share for a business error."),
        **{f"factor_{name}": Column(BOOLEAN, text) for name, text in _FACTOR_MEANINGS.items()},
        "error": Column(STRING, "Why the interpretation cannot judge the response."),
    }
    for prefix, interpretation in _INTERPRETATIONS.items():
        for name, column in columns.items():
            copy = Column(
                column.kind, f"{column.meaning} Interpretation: {interpretation}.", column.unit
            )
            setattr(SeedScores, f"{prefix}_{name}", copy)
            copy.__set_name__(SeedScores, f"{prefix}_{name}")


_add_seed_columns()

INTERPRETATION_COLUMNS: Final = tuple(
    name
    for name in SeedScores.columns()
    if name.startswith(tuple(f"{each}_" for each in _INTERPRETATIONS))
)
"""Names of the columns that depend on the interpretation: `seed_*`, then `inspector_*`."""
