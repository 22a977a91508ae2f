"""Reproduces the scenario engine (`TestScenarioEngine`) of the document's original program.

Before the scenarios, the program also calls each tool with its own minimal and simple arguments,
and its recommendations begin with the results of these calls. Recorded traffic does not contain
these calls.
"""

from collections.abc import Iterator, Sequence

import msgspec

from mcptally.seeds import javascript
from mcptally.seeds.inspector import wording
from mcptally.seeds.inspector.model import ScenarioResult, ScenarioStatus, ScenarioSummary, Status
from mcptally.seeds.inspector.rows import rule_rows

ROWS = rule_rows("inspector")


def scenario_status(results: Sequence[ScenarioResult], planned: int) -> ScenarioStatus:
    """Determine a tool's status, as the engine does, from the results of its scenarios."""
    run = [result for result in results if result.executed]
    passed = sum(result.is_valid for result in run)
    business_logic = sum(
        result.classification == "fully_working"
        and any(wording.BUSINESS_LOGIC in sentence for sentence in result.evidence)
        for result in results
    )
    first_happy = next((r for r in results if r.category == "happy_path"), None)
    first_works = first_happy is not None and first_happy.classification == "fully_working"
    summary = _summary(run)
    status = _status(len(run), passed, business_logic, summary, first_works=first_works)
    found = ScenarioStatus(
        status=status,
        confidence=_confidence(results, planned, len(run), passed, summary),
        executed=len(run),
        passed=passed,
        failed=len(run) - passed,
        summary=summary,
    )
    advice = _recommendations(found, results, planned, business_logic, first_works=first_works)
    return msgspec.structs.replace(found, recommendations=tuple(advice))


def _summary(run: Sequence[ScenarioResult]) -> ScenarioSummary:
    """Count the successes among the executed scenarios of each category."""

    def counted(category: str) -> tuple[int, int]:
        chosen = [result for result in run if result.category == category]
        return sum(result.is_valid for result in chosen), len(chosen)

    edges, boundaries = counted("edge_case"), counted("boundary")
    return ScenarioSummary(
        happy_path_success=counted("happy_path")[0] > 0,
        edge_cases_handled=edges[0],
        edge_cases_total=edges[1],
        boundaries_respected=boundaries[0],
        boundaries_total=boundaries[1],
        error_handling_works=counted("error_case")[0] > 0,
    )


def _status(
    executed: int, passed: int, business_logic: int, summary: ScenarioSummary, *, first_works: bool
) -> Status:
    if not executed:
        return "untested"
    fully, mostly, partly, barely, _ = (row.value or 0.0 for row in ROWS.part("status"))
    rate = min(1.0, (passed + business_logic) / executed)
    handled = summary.error_handling_works
    if handled and rate >= fully:
        return "fully_working"
    if (handled and (rate >= mostly or business_logic)) or rate >= partly:
        return "partially_working"
    if rate >= barely or summary.happy_path_success or first_works or business_logic:
        return "connectivity_only"
    return "broken"


def _confidence(
    results: Sequence[ScenarioResult],
    planned: int,
    executed: int,
    passed: int,
    summary: ScenarioSummary,
) -> float:
    share = passed / executed if executed else 0.0
    confidence = javascript.divided(executed, planned) * 100 * share
    if summary.happy_path_success:
        confidence = javascript.at_most(100, confidence + 10)
    if summary.error_handling_works:
        confidence = javascript.at_most(100, confidence + 5)
    if executed < 3:
        confidence *= 0.7
    if results:
        total = 0.0
        for result in results:  # not `sum`, which rounds less often than the program's additions
            total += result.confidence or 0
        confidence = confidence * 0.6 + total / len(results) * 0.4
    return javascript.rounded(confidence)


def _recommendations(
    found: ScenarioStatus,
    results: Sequence[ScenarioResult],
    planned: int,
    business_logic: int,
    *,
    first_works: bool,
) -> Iterator[str]:
    summary = found.summary
    if summary is None:
        return
    if business_logic > found.failed * 0.7:
        yield from wording.ADVICE_BUSINESS_LOGIC
        return
    if not summary.happy_path_success:
        yield wording.ADVICE_VALID_IDS if first_works else wording.ADVICE_HAPPY_PATH
    if not summary.error_handling_works:
        yield wording.ADVICE_ERROR_HANDLING
    failed_edges = summary.edge_cases_total - summary.edge_cases_handled
    failed_boundaries = summary.boundaries_total - summary.boundaries_respected
    if failed_edges:
        working = sum(
            result.category == "edge_case" and result.classification == "fully_working"
            for result in results
        )
        if working:
            yield wording.ADVICE_EDGE_RULES.format(working)
        else:
            yield wording.ADVICE_EDGE_CASES.format(failed_edges)
    if failed_boundaries:
        yield wording.ADVICE_BOUNDARIES.format(failed_boundaries)
    issues = {issue for result in results for issue in result.issues}
    yield from (advice for issue, advice in wording.ADVICE_ON_ISSUES.items() if issue in issues)
    if found.status == "fully_working":
        yield wording.ALL_PASSED.format(found.passed, planned)
    elif found.status == "partially_working":
        weak = {
            "happy path": not summary.happy_path_success,
            "edge cases": failed_edges,
            "boundaries": failed_boundaries,
            "error handling": not summary.error_handling_works,
        }
        names = ", ".join(name for name, is_weak in weak.items() if is_weak)
        yield wording.PARTIAL.format(found.passed, planned, found.failed, names)
