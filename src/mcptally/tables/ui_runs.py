"""Declaration of the table `ui_runs`."""

import polars as pl

from mcptally.tables.declaration import Column, Table


class UiRuns(Table):
    """One row a test run of a UI probe."""

    name = "ui_runs"
    meaning = "One row a test run of a UI probe, found in a tool's result."
    key = ("recording", "call_id", "run_id")

    call_id = Column(pl.String, "The call whose result holds it.")
    recording = Column(pl.String, "Recording.")
    session = Column(pl.String, "Session.")
    server = Column(pl.String, "Label of the server.")
    tool = Column(pl.String, "Tool that was called.")
    run_id = Column(pl.String, "Its `runId`.")
    url = Column(pl.String, "Page under test.")
    viewport = Column(pl.String, "Viewport.")
    user_agent = Column(pl.String, "User agent.")
    result = Column(pl.String, "`passed`, `passed_with_warnings` or `failed`, as the run says.")
    result_determined = Column(pl.String, "The same as the program determines it from the errors.")
    steps = Column(pl.UInt32, "Steps listed.")
    errors = Column(pl.UInt32, "Errors listed.")
    forms = Column(pl.UInt32, "Forms found.")
    axe_violations = Column(pl.Int64, "Violations of accessibility.")
    total_time_ms = Column(pl.Float64, "Duration that the run tells.", "ms")
    steps_told = Column(pl.Int64, "`metrics.steps`.")
    network_errors_told = Column(pl.Int64, "`metrics.networkErrors`.")
    console_errors_told = Column(pl.Int64, "`metrics.consoleErrors`.")
    shape_issues = Column(
        pl.List(pl.String), "What the program's schema finds wrong: `path: code`."
    )
