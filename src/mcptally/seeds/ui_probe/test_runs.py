"""UI tests over MCP: the data of seven simple tools, and whole test runs (UI probe seed).

The shapes are tables. A run is judged as the program's own schema judges it (`program`), its
result as the program determines it (`determined`) or as the document's words allow it (`allowed`);
`run` and `simple` put it together and are what findings are made from.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from mcptally.seeds.violation import Violation, pointer

PREFILTER: Final = "runId"

UNSURE: Final = 0.7
"""A form inferred with no more confidence than this is not to be filled (document, 4.2)."""

# --- shapes ---
#
# "string", "number", "boolean", "any" and "record" are types; a tuple is an enumeration; a list
# holds the shape of its items; a dict the shapes of its members, those with ? may be left out.

_FIELD: Final = {
    "name": "string",
    "type": "string",
    "selector": "string",
    "required?": "boolean",
    "rules?": ["string"],
    "policy?": {
        **dict.fromkeys(("min?", "max?", "upper?", "digit?", "symbol?"), "number"),
        "pattern?": "string",
    },
    "placeholder?": "string",
    "label?": "string",
}
_FORM: Final = {
    "name": "string",
    "selector?": "string",
    "fields": [_FIELD],
    "submit": {"selector": "string", "text?": "string"},
}
STEP: Final = {
    "stepId": "string",
    "action": ("fill", "click", "navigate", "assert", "wait"),
    "selector?": "string",
    "inferredIntent": "string",
    "input?": "record",
    "outcome": ("success", "fail", "timeout"),
    "latencyMs": "number",
    "artifacts?": {"screenshot?": "string", "console?": ["string"], "network?": ["string"]},
    "timestamp": "string",
}
ERROR: Final = {
    "type": ("validation", "console", "network", "timeout", "accessibility"),
    "selector?": "string",
    "message": "string",
    "code": "string",
    "evidence?": {
        "text?": "string",
        "ariaLive?": "boolean",
        "screenshot?": "string",
        "request?": {
            "method": "string",
            "url": "string",
            "status": "number",
            "bodyExcerpt?": "string",
        },
    },
    "timestamp": "string",
}
RUN: Final = {
    "runId": "string",
    "target": {"url": "string", "viewport": "string", "userAgent": "string"},
    "flow": [STEP],
    "findings": {
        "forms": [_FORM],
        "accessibility?": {"axeViolations": "number", "details": ["any"]},
    },
    "errors": [ERROR],
    "result": ("passed", "passed_with_warnings", "failed"),
    "metrics": {
        "totalTimeMs": "number",
        "steps": "number",
        "networkErrors": "number",
        "consoleErrors": "number",
    },
}
"""A test run as the program's schema has it; extra members are allowed."""

_DOCUMENT_STEP: Final = {
    **{k: v for k, v in STEP.items() if k != "selector?"},
    "selector": "string",
}
_DOCUMENT_ERROR: Final = {
    **ERROR,
    "type": ("validation", "console", "network", "timeout"),
    "evidence?": "record",
}
DOCUMENT_RUN: Final = {
    **RUN,
    "flow": [_DOCUMENT_STEP],
    "errors": [_DOCUMENT_ERROR],
    "findings": {"forms": ["any"], "accessibility": "record"},
}
"""The same as the document describes it."""


class Issue(NamedTuple):
    """A member of another shape: where, and what kind of difference."""

    path: tuple[str | int, ...]
    code: str
    """`invalid_type` (another type, or missing) or `invalid_enum_value`."""


def program(value: Any) -> list[Issue]:
    """What the program's schema finds wrong with a test run, in its order."""
    return list(_differences(value, RUN, ()))


def document(value: Any) -> list[Issue]:
    """What breaks the document's description of a test run."""
    return list(_differences(value, DOCUMENT_RUN, ()))


_ABSENT: Final = object()


def _differences(value: Any, shape: Any, path: tuple[str | int, ...]) -> Iterator[Issue]:
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            yield Issue(path, "invalid_type")
            return
        for key, inner in shape.items():
            name = key.removesuffix("?")
            member = value.get(name, _ABSENT)
            if member is not _ABSENT or not key.endswith("?"):
                yield from _differences(member, inner, (*path, name))
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield Issue(path, "invalid_type")
            return
        for number, item in enumerate(value):
            yield from _differences(item, shape[0], (*path, number))
    elif isinstance(shape, tuple):
        if not isinstance(value, str):
            yield Issue(path, "invalid_type")
        elif value not in shape:
            yield Issue(path, "invalid_enum_value")
    elif not _is(value, shape):
        yield Issue(path, "invalid_type")


def _is(value: Any, kind: str) -> bool:
    if kind == "any":
        return True
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, {"string": str, "boolean": bool, "record": dict}[kind])


def as_double(value: Any) -> float | None:
    """A JSON number; None for any other value, and for an integer that no double holds."""
    if not _is(value, "number"):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


# --- runs ---

CODES: Final = frozenset(
    [
        "E_FIELD_FILL",
        "E_FLOW_EXECUTION",
        "E_VALIDATION_RULE",
        "E_NOTIFICATION",
        "E_CONSOLE",
        "E_NETWORK",
        "E_NAVIGATION",
        "E_FORM_INFERENCE",
        "E_VALIDATION",
        "E_TIMEOUT",
        "E_SELECTOR",
        "E_UNKNOWN_TOOL",
        "E_BUTTON_NOT_FOUND",
        "E_CLICK_FAILED",
        "E_FILL_SUBMIT",
        "E_NO_FORMS",
        "E_ASSERT_SELECTORS",
        "E_COLLECT_ERRORS",
        "E_VERIFY_FAILED",
        "E_EXPORT_REPORT",
        "E_RUN_NOT_FOUND",
        "E_UNSUPPORTED_FORMAT",
        "E_VALIDATION_REQUIRED",
        "E_VALIDATION_FORMAT",
        "E_CONSOLE_ERROR",
        "E_CONSOLE_WARNING",
        "E_NETWORK_ERROR",
        "E_NETWORK_TIMEOUT",
        "E_NETWORK_CORS",
        "E_SELECTOR_NOT_FOUND",
        "E_NAVIGATION_FAILED",
        "E_FORM_INFERENCE_FAILED",
    ]
)
"""Codes of the program (first four lines) and of its documents."""

_CODE: Final = re.compile(r"E_\w+_(?:JOURNEY|RECORDING|PLAYBACK)\Z")
_ISO: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?\Z", re.IGNORECASE
)


def is_run(value: Any) -> bool:
    """Whether a value is meant as a test run."""
    return isinstance(value, dict) and "runId" in value and len(value.keys() & RUN.keys()) >= 4


def known_code(code: str) -> bool:
    """Whether the program or its documents know an error code."""
    return code in CODES or _CODE.match(code) is not None


def determined(run: Any) -> str | None:
    """The result that the program determines from a run's errors; None where it cannot."""
    errors = run.get("errors") if isinstance(run, dict) else None
    if not isinstance(errors, list):
        return None
    kinds = [error.get("type") for error in errors if isinstance(error, dict)]
    if "validation" in kinds or "timeout" in kinds:
        return "failed"
    return "passed_with_warnings" if "console" in kinds or "network" in kinds else "passed"


def allowed(run: Mapping[str, Any]) -> tuple[str, ...]:
    """The results that the document's words allow: passed means no errors, and only that."""
    return ("passed_with_warnings", "failed") if run.get("errors") else ("passed",)


def run(value: Mapping[str, Any], at: str) -> Iterator[Violation]:
    """What is wrong with a test run; the code of a breach is the id of the rule."""
    for issue in program(value)[:20]:
        words = "is not of the type it has to be"
        if issue.code == "invalid_enum_value":
            words = "is none of the values it may have"
        yield Violation(at + pointer(*issue.path), words, "ui_probe.run_shape")
    errors, flow = value.get("errors"), value.get("flow")
    if isinstance(errors, list):
        yield from _result(value, at)
        yield from _counts(value, errors, flow, at)
        yield from _codes(errors, at)
    for name, items in (("flow", flow), ("errors", errors)):
        yield from _times(name, items, at)
    if isinstance(flow, list) and value.get("result") == "passed":
        for number, step in enumerate(flow):
            if isinstance(step, dict) and step.get("outcome") in ("fail", "timeout"):
                words = f"the step ended in {step['outcome']} and the run passed"
                place = at + pointer("flow", number, "outcome")
                yield Violation(place, words, "ui_probe.run_step")


def _result(value: Mapping[str, Any], at: str) -> Iterator[Violation]:
    said, right = value.get("result"), determined(value)
    if said not in RUN["result"] or said == right:
        return
    by_words = allowed(value)
    also = "; the document's words allow it" if said in by_words else ""
    words = f"result is {said}, the errors listed make it {right}{also}"
    yield Violation(at + "/result", words, "ui_probe.run_result", said)


def _counts(value: Mapping[str, Any], errors: Any, flow: Any, at: str) -> Iterator[Violation]:
    metrics = value.get("metrics")
    if not isinstance(metrics, dict):
        return
    kinds = [error.get("type") for error in errors if isinstance(error, dict)]
    true = {"networkErrors": kinds.count("network"), "consoleErrors": kinds.count("console")}
    if isinstance(flow, list):
        true = {"steps": len(flow)} | true
    for name, number in true.items():
        said = metrics.get(name)
        if _is(said, "number") and said != number:
            words = f"{name} is {said}, the run lists {number}"
            yield Violation(at + pointer("metrics", name), words, "ui_probe.run_metrics", f"{said}")


def _codes(errors: list[Any], at: str) -> Iterator[Violation]:
    for number, error in enumerate(errors):
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(code, str) and not known_code(code):
            place = at + pointer("errors", number, "code")
            yield Violation(place, "the code is known to nobody", "ui_probe.run_code", code[:80])


def _times(name: str, items: Any, at: str) -> Iterator[Violation]:
    for number, item in enumerate(items if isinstance(items, list) else ()):
        time = item.get("timestamp") if isinstance(item, dict) else None
        if isinstance(time, str) and not _ISO.match(time):
            place = at + pointer(name, number, "timestamp")
            yield Violation(place, "is no ISO 8601 time", "ui_probe.run_timestamp", time[:60])


# --- the seven simple tools ---

_PAGE: Final = {name: ["any"] for name in ("forms", "buttons", "inputs", "roles", "landmarks")}

DATA: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "navigate": {
        "document": {"url": "string", "currentUrl": "string"},
        "program": {"ok": "boolean", "currentUrl": "string"},
    },
    "analyze_ui": {
        "document": _PAGE,
        "program": _PAGE,
    },
    "click_button": {
        "document": {
            "clicked": "boolean",
            "selector": "string",
            "currentUrl": "string",
            "pageTitle": "string",
        },
        "program": {"clicked": "boolean"},
    },
    "infer_form": {
        "document": {"formSchema": "record", "confidence": "number"},
        "program": {"formSchema": _FORM, "confidence": "number"},
    },
    "assert_selectors": {
        "document": {
            "pass": "boolean",
            "failures": ["any"],
            "summary": dict.fromkeys(("total", "passed", "failed"), "number"),
        },
        "program": {"pass": "boolean", "failures": ["any"]},
    },
    "collect_errors": {
        "document": {
            "errors": ["any"],
            "summary": dict.fromkeys(("total", "console", "network", "validation"), "number"),
        },
        "program": {"errors": ["any"]},
    },
    "verify_page": {
        "document": {
            "isValid": "boolean",
            "title": "string",
            "url": "string",
            "checks": dict.fromkeys(
                ("expectedContent", "unexpectedContent", "titleMatch", "urlMatch"), "boolean"
            ),
        },
        "program": {"success": "boolean", "failures": ["any"], "checks": "any"},
    },
}
"""Tool → reading → what its `data` has to hold."""

TOOLS: Final = tuple(DATA)


def data(tool: str, value: Any, reading: str = "document") -> list[Issue]:
    """What a reading finds wrong with the `data` of a simple tool."""
    return list(_differences(value, DATA[tool][reading], ()))


def simple(tool: str, value: Any, at: str) -> Iterator[Violation]:
    """What is wrong with the `data` of a successful answer of a simple tool.

    It breaks the contract of its shape only if it is of neither reading's.
    """
    by_reading = {reading: data(tool, value, reading) for reading in ("document", "program")}
    if all(by_reading.values()):
        nearest = min(by_reading, key=lambda reading: len(by_reading[reading]))
        for issue in by_reading[nearest]:
            words = f"{tool} has to say this ({nearest})"
            yield Violation(at + pointer(*issue.path), words, "ui_probe.data")
    if not isinstance(value, dict):
        return
    yield from _summary(value, at)
    yield from _passed(value, at)
    yield from _valid(value, at)
    sure = value.get("confidence")
    if isinstance(sure, int | float) and not (isinstance(sure, bool) or 0 <= sure <= 1):
        words = "confidence is not within 0 to 1"
        yield Violation(at + "/confidence", words, "ui_probe.confidence", f"{sure}")


def _summary(value: Mapping[str, Any], at: str) -> Iterator[Violation]:
    summary = value.get("summary")
    if not isinstance(summary, dict) or not _is(summary.get("total"), "number"):
        return
    total = summary["total"]
    parts = [part for name, part in summary.items() if name != "total" and _is(part, "number")]
    if parts and sum(parts) != total:
        words = f"total is {total}, its parts make {sum(parts)}"
        yield Violation(at + "/summary/total", words, "ui_probe.summary", f"{total}")
    errors = value.get("errors")
    if isinstance(errors, list) and len(errors) != total:
        words = f"total is {total}, the errors listed are {len(errors)}"
        yield Violation(at + "/summary/total", words, "ui_probe.summary", f"{total}")


def _passed(value: Mapping[str, Any], at: str) -> Iterator[Violation]:
    passed, failures = value.get("pass"), value.get("failures")
    if isinstance(passed, bool) and isinstance(failures, list) and passed == bool(failures):
        words = f"pass is {str(passed).lower()} with {len(failures)} failures"
        yield Violation(at + "/pass", words, "ui_probe.pass")


def _valid(value: Mapping[str, Any], at: str) -> Iterator[Violation]:
    valid, checks = value.get("isValid"), value.get("checks")
    if not isinstance(valid, bool) or not isinstance(checks, dict):
        return
    held = [
        bool(passed) != (name == "unexpectedContent")
        for name, passed in checks.items()
        if isinstance(passed, bool)
    ]
    if held and valid != all(held):
        words = f"isValid is {str(valid).lower()}, {held.count(False)} of its checks failed"
        yield Violation(at + "/isValid", words, "ui_probe.valid")
