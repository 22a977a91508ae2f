"""Checks the `data` of the seven simple UI probe tools against the document and the program."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcptally.seeds.ui_probe.shapes import SHAPES, Issue, differences, has_type
from mcptally.seeds.violation import Violation, pointer

TOOLS: Final = tuple(SHAPES["document"]["data"])
"""The tools whose `data` has a shape in both interpretations."""


def issues(tool: str, data: Any, interpretation: str = "document") -> list[Issue]:
    """Return the differences between a tool's `data` and an interpretation's shape for it."""
    return list(differences(data, SHAPES[interpretation]["data"][tool]))


def violations(tool: str, data: Any, path: str) -> Iterator[Violation]:
    """Yield the violations in the `data` of a tool's successful answer.

    There is a violation only if `data` fits neither interpretation's shape.

    Args:
        tool: the tool's name.
        data: the data.
        path: JSON Pointer of the data in the result.
    """
    by_interpretation = {
        interpretation: issues(tool, data, interpretation)
        for interpretation in ("document", "program")
    }
    if all(by_interpretation.values()):
        nearest = min(
            by_interpretation, key=lambda interpretation: len(by_interpretation[interpretation])
        )
        for issue in by_interpretation[nearest]:
            message = f"is missing or has the wrong type in the data of {tool} ({nearest})"
            yield Violation(path + pointer(*issue.path), message, "ui_probe.data")
    if not isinstance(data, dict):
        return
    yield from _check_summary(data, path)
    yield from _check_pass(data, path)
    yield from _check_is_valid(data, path)
    confidence = data.get("confidence")
    if confidence is not None and has_type(confidence, "number") and not 0 <= confidence <= 1:
        message = "confidence is not between 0 and 1"
        yield Violation(path + "/confidence", message, "ui_probe.confidence", f"{confidence}")


def _check_summary(data: Mapping[str, Any], path: str) -> Iterator[Violation]:
    summary = data.get("summary")
    if not isinstance(summary, dict) or not has_type(summary.get("total"), "number"):
        return
    total = summary["total"]
    parts = [part for name, part in summary.items() if name != "total" and has_type(part, "number")]
    if parts and sum(parts) != total:
        message = f"total is {total}, but its parts add up to {sum(parts)}"
        yield Violation(path + "/summary/total", message, "ui_probe.summary", f"{total}")
    errors = data.get("errors")
    if isinstance(errors, list) and len(errors) != total:
        message = f"total is {total}, but {len(errors)} errors are listed"
        yield Violation(path + "/summary/total", message, "ui_probe.summary", f"{total}")


def _check_pass(data: Mapping[str, Any], path: str) -> Iterator[Violation]:
    passed, failures = data.get("pass"), data.get("failures")
    if isinstance(passed, bool) and isinstance(failures, list) and passed == bool(failures):
        message = f"pass is {str(passed).lower()}, but {len(failures)} failures are listed"
        yield Violation(path + "/pass", message, "ui_probe.pass")


def _check_is_valid(data: Mapping[str, Any], path: str) -> Iterator[Violation]:
    valid, checks = data.get("isValid"), data.get("checks")
    if not isinstance(valid, bool) or not isinstance(checks, dict):
        return
    passed = [
        bool(value) != (name == "unexpectedContent")
        for name, value in checks.items()
        if isinstance(value, bool)
    ]
    if passed and valid != all(passed):
        failed = passed.count(False)
        message = f"isValid is {str(valid).lower()}, but {failed} of its checks failed"
        yield Violation(path + "/isValid", message, "ui_probe.valid")
