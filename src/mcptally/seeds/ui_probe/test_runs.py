"""Checks the shape and the result of UI probe test runs.

`program` and `document` check a run's shape in the two interpretations. `determined` returns the
result that the program assigns to a run, `allowed` the results that the document permits.
`violations` combines these functions for findings.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcptally.redaction.key_patterns import words
from mcptally.seeds.ui_probe.shapes import SHAPES, Issue, differences, has_type
from mcptally.seeds.violation import Violation, pointer

PREFILTER: Final = "runId"
"""Text that occurs in the JSON of every result with a test run."""

RUN: Final = SHAPES["program"]["run"]
"""The shape that the original program's schema requires of a test run."""


def program(value: Any) -> list[Issue]:
    """Return the differences between a run and the original program's schema, in schema order."""
    return list(differences(value, RUN))


def document(value: Any) -> list[Issue]:
    """Return the differences between a test run and its description in the document."""
    return list(differences(value, SHAPES["document"]["run"]))


CODES: Final = words(
    "E_FIELD_FILL E_FLOW_EXECUTION E_VALIDATION_RULE E_NOTIFICATION E_CONSOLE E_NETWORK "
    "E_NAVIGATION E_FORM_INFERENCE E_VALIDATION E_TIMEOUT E_SELECTOR E_UNKNOWN_TOOL "
    "E_BUTTON_NOT_FOUND E_CLICK_FAILED E_FILL_SUBMIT E_NO_FORMS E_ASSERT_SELECTORS "
    "E_COLLECT_ERRORS E_VERIFY_FAILED E_EXPORT_REPORT E_RUN_NOT_FOUND E_UNSUPPORTED_FORMAT "
    "E_VALIDATION_REQUIRED E_VALIDATION_FORMAT E_CONSOLE_ERROR E_CONSOLE_WARNING E_NETWORK_ERROR "
    "E_NETWORK_TIMEOUT E_NETWORK_CORS E_SELECTOR_NOT_FOUND E_NAVIGATION_FAILED "
    "E_FORM_INFERENCE_FAILED"
)
"""Error codes that the original program and its documents define."""

_CODE_FAMILY: Final = re.compile(r"E_\w+_(?:JOURNEY|RECORDING|PLAYBACK)\Z")
_ISO: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?\Z", re.IGNORECASE
)


def is_run(value: Any) -> bool:
    """Return whether a value has `runId` and at least three other members of a test run."""
    return isinstance(value, dict) and "runId" in value and len(value.keys() & RUN.keys()) >= 4


def known_code(code: str) -> bool:
    """Return whether the original program or its documents define an error code."""
    return code in CODES or _CODE_FAMILY.match(code) is not None


def determined(run: Any) -> str | None:
    """Return the result that the original program derives from a run's `errors`.

    Returns None if `errors` is not a list.
    """
    errors = run.get("errors") if isinstance(run, dict) else None
    if not isinstance(errors, list):
        return None
    kinds = [error.get("type") for error in errors if isinstance(error, dict)]
    if "validation" in kinds or "timeout" in kinds:
        return "failed"
    return "passed_with_warnings" if "console" in kinds or "network" in kinds else "passed"


def allowed(run: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the results that the document permits: `passed` only if there are no errors."""
    return ("passed_with_warnings", "failed") if run.get("errors") else ("passed",)


def violations(run: Mapping[str, Any], path: str) -> Iterator[Violation]:
    """Yield the violations in a test run; their codes are rule ids.

    Args:
        run: the test run.
        path: JSON Pointer of the run in the result.
    """
    for issue in program(run)[:20]:
        message = "has the wrong type or is missing"
        if issue.code == "invalid_enum_value":
            message = "is not one of the allowed values"
        yield Violation(path + pointer(*issue.path), message, "ui_probe.run_shape")
    errors, flow = run.get("errors"), run.get("flow")
    if isinstance(errors, list):
        yield from _check_result(run, path)
        yield from _check_metrics(run, errors, flow, path)
        yield from _check_codes(errors, path)
    for name, items in (("flow", flow), ("errors", errors)):
        yield from _check_timestamps(name, items, path)
    if isinstance(flow, list) and run.get("result") == "passed":
        for number, step in enumerate(flow):
            if isinstance(step, dict) and step.get("outcome") in ("fail", "timeout"):
                message = f"the outcome of the step is {step['outcome']} but the run passed"
                step_path = path + pointer("flow", number, "outcome")
                yield Violation(step_path, message, "ui_probe.run_step")


def _check_result(run: Mapping[str, Any], path: str) -> Iterator[Violation]:
    result, expected = run.get("result"), determined(run)
    if result not in RUN["result"] or result == expected:
        return
    also = "; the document permits it" if result in allowed(run) else ""
    message = f"result is {result}, but the listed errors make it {expected}{also}"
    yield Violation(path + "/result", message, "ui_probe.run_result", result)


def _check_metrics(
    run: Mapping[str, Any], errors: list[Any], flow: Any, path: str
) -> Iterator[Violation]:
    metrics = run.get("metrics")
    if not isinstance(metrics, dict):
        return
    kinds = [error.get("type") for error in errors if isinstance(error, dict)]
    counts = {"networkErrors": kinds.count("network"), "consoleErrors": kinds.count("console")}
    if isinstance(flow, list):
        counts = {"steps": len(flow)} | counts
    for name, count in counts.items():
        metric = metrics.get(name)
        if has_type(metric, "number") and metric != count:
            message = f"{name} is {metric}, but the run lists {count}"
            metric_path = path + pointer("metrics", name)
            yield Violation(metric_path, message, "ui_probe.run_metrics", f"{metric}")


def _check_codes(errors: list[Any], path: str) -> Iterator[Violation]:
    for number, error in enumerate(errors):
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(code, str) and not known_code(code):
            code_path = path + pointer("errors", number, "code")
            yield Violation(code_path, "the error code is unknown", "ui_probe.run_code", code[:80])


def _check_timestamps(name: str, items: Any, path: str) -> Iterator[Violation]:
    for number, item in enumerate(items if isinstance(items, list) else ()):
        time = item.get("timestamp") if isinstance(item, dict) else None
        if isinstance(time, str) and not _ISO.match(time):
            time_path = path + pointer(name, number, "timestamp")
            yield Violation(
                time_path, "is not an ISO 8601 time", "ui_probe.run_timestamp", time[:60]
            )
