"""Declaration of the table `validations`."""

import polars as pl

from mcptally.tables.declaration import TIME, Column, Table


class Validations(Table):
    """One row a dry run that a server was asked for."""

    name = "validations"
    meaning = "One row a call of the validation protocol (a `validate` tool, or `tools/validate`)."
    key = ("recording", "call_id")

    call_id = Column(pl.String, "The call that asks for validation.")
    recording = Column(pl.String, "Recording.")
    session = Column(pl.String, "Session.")
    server = Column(pl.String, "Label of the server.")
    native = Column(pl.String, "How it was asked: `tool` or `method`.")
    tool = Column(pl.String, "Tool that is to be validated.")
    definition = Column(pl.String, "Definition of that tool then in force.")
    arguments = Column(pl.String, "Its arguments, as canonical JSON. Left out with --no-payloads.")
    answered_at = Column(TIME, "When the answer arrived.")
    latency_ms = Column(pl.Float64, "How long it took.", "ms")
    valid = Column(pl.Boolean, "The answer; null if it is none.")
    errors = Column(pl.List(pl.String), "Errors of the answer.")
    warnings = Column(pl.List(pl.String), "Warnings of the answer.")
    phase = Column(
        pl.String,
        "How deep the answer's words show the server to look: `schema`, `semantic` or `deep`; "
        "null where they show nothing.",
    )
