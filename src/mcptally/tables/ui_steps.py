"""Declares the table `ui_steps`."""

from mcptally.tables.column_types import FLOAT64, STRING, UINT32
from mcptally.tables.declaration import Column, Table


class UiSteps(Table):
    """One row per step of a UI test run."""

    name = "ui_steps"
    key = ("recording", "call_id", "run_id", "position")

    call_id = Column(STRING, "Call whose result contains the run.")
    recording = Column(STRING, "Recording.")
    session = Column(STRING, "Session.")
    server = Column(STRING, "Label of the server.")
    tool = Column(STRING, "Tool that was called.")
    run_id = Column(STRING, "Run that the step belongs to.")
    position = Column(UINT32, "Position in `flow`, from 0.")
    step_id = Column(STRING, "Its `stepId`.")
    action = Column(STRING, "`fill`, `click`, `navigate`, `assert` or `wait`.")
    selector = Column(STRING, "CSS selector.")
    intent = Column(STRING, "Purpose of the step.")
    input = Column(STRING, "JSON text of the input.")
    outcome = Column(STRING, "`success`, `fail` or `timeout`.")
    latency_ms = Column(FLOAT64, "Duration of the step.", "ms")
    timestamp = Column(STRING, "Time of the step, as the run reports it.")
