"""Declares the tables `ui_runs`, `ui_steps` and `ui_errors` about test runs of a UI probe."""

from mcptally.tables.column_types import BOOLEAN, FLOAT64, INT64, STRING, UINT32, list_of
from mcptally.tables.declaration import Column, Table


class _OfRun(Table):
    """Columns that identify a run."""

    call_id = Column(STRING, "Call whose result contains the run.")
    recording = Column(STRING, "Recording.")
    session = Column(STRING, "Session.")
    server = Column(STRING, "Label of the server.")
    tool = Column(STRING, "Tool that was called.")
    run_id = Column(STRING, "The run's `runId`.")


class UiRuns(_OfRun):
    """One row per test run of a UI probe that a tool's result contains."""

    name = "ui_runs"
    key = ("recording", "call_id", "run_id")

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


class UiSteps(_OfRun):
    """One row per step of a UI test run."""

    name = "ui_steps"
    key = ("recording", "call_id", "run_id", "position")

    position = Column(UINT32, "Position in `flow`, from 0.")
    step_id = Column(STRING, "Its `stepId`.")
    action = Column(STRING, "`fill`, `click`, `navigate`, `assert` or `wait`.")
    selector = Column(STRING, "CSS selector.")
    intent = Column(STRING, "Purpose of the step.")
    input = Column(STRING, "JSON text of the input.")
    outcome = Column(STRING, "`success`, `fail` or `timeout`.")
    latency_ms = Column(FLOAT64, "Duration of the step.", "ms")
    timestamp = Column(STRING, "Time of the step, as the run reports it.")


class UiErrors(_OfRun):
    """One row per error listed in a UI test run."""

    name = "ui_errors"
    key = ("recording", "call_id", "run_id", "position")

    position = Column(UINT32, "Position in `errors`, from 0.")
    type = Column(STRING, "`validation`, `console`, `network`, `timeout` or `accessibility`.")
    code = Column(STRING, "Error code, for example `E_NETWORK`.")
    code_known = Column(BOOLEAN, "Whether the seed program or its documents define the code.")
    selector = Column(STRING, "CSS selector.")
    message = Column(STRING, "Message.")
    evidence = Column(STRING, "JSON text of the evidence.")
    timestamp = Column(STRING, "Time of the error, as the run reports it.")
