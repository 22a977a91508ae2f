"""Declaration of the table `ui_steps`."""

import polars as pl

from mcptally.tables.declaration import Column, Table


class UiSteps(Table):
    """One row a step of a UI test run."""

    name = "ui_steps"
    meaning = "One row a step of a UI test run."
    key = ("recording", "call_id", "run_id", "position")

    call_id = Column(pl.String, "The call whose result holds it.")
    recording = Column(pl.String, "Recording.")
    session = Column(pl.String, "Session.")
    server = Column(pl.String, "Label of the server.")
    tool = Column(pl.String, "Tool that was called.")
    run_id = Column(pl.String, "Run it belongs to.")
    position = Column(pl.UInt32, "Place in `flow`, from 0.")
    step_id = Column(pl.String, "Its `stepId`.")
    action = Column(pl.String, "`fill`, `click`, `navigate`, `assert` or `wait`.")
    selector = Column(pl.String, "CSS selector.")
    intent = Column(pl.String, "What the step is meant to do.")
    input = Column(pl.String, "JSON text of what was put in.")
    outcome = Column(pl.String, "`success`, `fail` or `timeout`.")
    latency_ms = Column(pl.Float64, "How long it took.", "ms")
    timestamp = Column(pl.String, "When, as the run says it.")
