"""The table `validations`."""

import polars as pl

from mcptally.tables.declaration import TIME, Column, Table


class Validations(Table):
    """One row per call of the validation protocol (a `validate` tool, or `tools/validate`)."""

    name = "validations"
    key = ("recording", "call_id")

    call_id = Column(pl.String, "Call that requests validation.")
    recording = Column(pl.String, "Recording.")
    session = Column(pl.String, "Session.")
    server = Column(pl.String, "Label of the server.")
    native = Column(pl.String, "Form of the request: `tool` or `method`.")
    tool = Column(pl.String, "Tool whose arguments are validated.")
    definition = Column(pl.String, "Definition of that tool in force at the time.")
    arguments = Column(pl.String, "Its arguments, as canonical JSON. Omitted with --no-payloads.")
    answered_at = Column(TIME, "When the answer arrived.")
    latency_ms = Column(pl.Float64, "Time until the answer.", "ms")
    valid = Column(
        pl.Boolean, "Whether the answer is `valid`; null if the answer has another form."
    )
    errors = Column(pl.List(pl.String), "Errors of the answer.")
    warnings = Column(pl.List(pl.String), "Warnings of the answer.")
    phase = Column(
        pl.String,
        "Depth of the validation, inferred from the wording of the answer: `schema`, "
        "`semantic` or `deep`; null where it shows nothing.",
    )
