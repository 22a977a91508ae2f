"""Declares the table `validations`."""

from mcptally.tables.column_types import BOOLEAN, FLOAT64, STRING, TIME, list_of
from mcptally.tables.declaration import Column, Table


class Validations(Table):
    """One row per call in the validation protocol (a `validate` tool or `tools/validate`)."""

    name = "validations"
    key = ("recording", "call_id")

    call_id = Column(STRING, "Call that requests validation.")
    recording = Column(STRING, "Recording.")
    session = Column(STRING, "Session.")
    server = Column(STRING, "Label of the server.")
    native = Column(STRING, "Form of the request: `tool` or `method`.")
    tool = Column(STRING, "Tool whose arguments are validated.")
    definition = Column(STRING, "Definition of that tool in force at the time.")
    arguments = Column(STRING, "Its arguments, as canonical JSON. Omitted with --no-payloads.")
    answered_at = Column(TIME, "When the answer arrived.")
    latency_ms = Column(FLOAT64, "Time until the answer.", "ms")
    valid = Column(BOOLEAN, "Whether the answer is `valid`; null if the answer has another form.")
    errors = Column(list_of(STRING), "Errors of the answer.")
    warnings = Column(list_of(STRING), "Warnings of the answer.")
    phase = Column(
        STRING,
        "Depth of the validation, inferred from the wording of the answer: `schema`, "
        "`semantic` or `deep`; null where it shows nothing.",
    )
