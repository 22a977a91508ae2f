"""Declares the table `ui_runs`."""

from mcptally.tables.column_types import FLOAT64, INT64, STRING, UINT32, list_of
from mcptally.tables.declaration import Column, Table


class UiRuns(Table):
    """One row per test run of a UI probe that a tool's result contains."""

    name = "ui_runs"
    key = ("recording", "call_id", "run_id")

    call_id = Column(STRING, "Call whose result contains the run.")
    recording = Column(STRING, "Recording.")
    session = Column(STRING, "Session.")
    server = Column(STRING, "Label of the server.")
    tool = Column(STRING, "Tool that was called.")
    run_id = Column(STRING, "Its `runId`.")
    url = Column(STRING, "Page under test.")
    viewport = Column(STRING, "Viewport.")
    user_agent = Column(STRING, "User agent.")
    result = Column(STRING, "`passed`, `passed_with_warnings` or `failed`, as the run reports.")
    result_determined = Column(STRING, "Result that the seed program derives from the errors.")
    steps = Column(UINT32, "Steps listed.")
    errors = Column(UINT32, "Errors listed.")
    forms = Column(UINT32, "Forms found.")
    axe_violations = Column(INT64, "Accessibility violations.")
    total_time_ms = Column(FLOAT64, "Duration that the run reports.", "ms")
    steps_told = Column(INT64, "`metrics.steps`.")
    network_errors_told = Column(INT64, "`metrics.networkErrors`.")
    console_errors_told = Column(INT64, "`metrics.consoleErrors`.")
    shape_issues = Column(
        list_of(STRING), "Errors of the run against the seed program's schema: `path: code`."
    )
