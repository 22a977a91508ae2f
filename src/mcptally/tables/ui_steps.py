"""The table `ui_steps`."""

import polars as pl

from mcptally.tables.declaration import Column, Table


class UiSteps(Table):
    """One row per step of a UI test run."""

    name = "ui_steps"
    key = ("recording", "call_id", "run_id", "position")

    call_id = Column(pl.String, "Call whose result contains the run.")
    recording = Column(pl.String, "Recording.")
    session = Column(pl.String, "Session.")
    server = Column(pl.String, "Label of the server.")
    tool = Column(pl.String, "Tool that was called.")
    run_id = Column(pl.String, "Run that the step belongs to.")
    position = Column(pl.UInt32, "Position in `flow`, from 0.")
    step_id = Column(pl.String, "Its `stepId`.")
    action = Column(pl.String, "`fill`, `click`, `navigate`, `assert` or `wait`.")
    selector = Column(pl.String, "CSS selector.")
    intent = Column(pl.String, "Purpose of the step.")
    input = Column(pl.String, "JSON text of the input.")
    outcome = Column(pl.String, "`success`, `fail` or `timeout`.")
    latency_ms = Column(pl.Float64, "Duration of the step.", "ms")
    timestamp = Column(pl.String, "Time of the step, as the run reports it.")
