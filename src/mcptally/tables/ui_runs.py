"""The table `ui_runs`."""

import polars as pl

from mcptally.tables.declaration import Column, Table


class UiRuns(Table):
    """One row per test run of a UI probe that a tool's result contains."""

    name = "ui_runs"
    key = ("recording", "call_id", "run_id")

    call_id = Column(pl.String, "Call whose result contains the run.")
    recording = Column(pl.String, "Recording.")
    session = Column(pl.String, "Session.")
    server = Column(pl.String, "Label of the server.")
    tool = Column(pl.String, "Tool that was called.")
    run_id = Column(pl.String, "Its `runId`.")
    url = Column(pl.String, "Page under test.")
    viewport = Column(pl.String, "Viewport.")
    user_agent = Column(pl.String, "User agent.")
    result = Column(pl.String, "`passed`, `passed_with_warnings` or `failed`, as the run reports.")
    result_determined = Column(pl.String, "Result that the seed program derives from the errors.")
    steps = Column(pl.UInt32, "Steps listed.")
    errors = Column(pl.UInt32, "Errors listed.")
    forms = Column(pl.UInt32, "Forms found.")
    axe_violations = Column(pl.Int64, "Accessibility violations.")
    total_time_ms = Column(pl.Float64, "Duration that the run reports.", "ms")
    steps_told = Column(pl.Int64, "`metrics.steps`.")
    network_errors_told = Column(pl.Int64, "`metrics.networkErrors`.")
    console_errors_told = Column(pl.Int64, "`metrics.consoleErrors`.")
    shape_issues = Column(
        pl.List(pl.String), "Errors of the run against the seed program's schema: `path: code`."
    )
