"""Standard messages of network and API errors in results that are not marked as errors."""

import pytest

from tests.scored_cases import Cases, Scored
from tests.transcripts import c2s, call, opened, s2c, text

pytestmark = pytest.mark.slow

CASES = Cases()


@pytest.fixture(scope="module")
def scored(tmp_path_factory) -> Scored:
    return CASES.score(tmp_path_factory.mktemp("phrases"))


def result(said: str, **members) -> int:
    return CASES.add(opened(), c2s(1, call(1, "list")), s2c(2, text(1, said, **members)))


def outcome_and_findings(scored: Scored, case: int) -> tuple[str, int]:
    (outcome,) = scored.rows("calls", case)["outcome"]
    findings = scored.rows("findings", case).filter(rule="content.error_without_is_error")
    return outcome, findings.height


STANDARD = {
    said: result(said)
    for said in (
        "Network error",
        "network error!",
        "API error: 500 Internal server error",
        "Internal server error",
        "HTTP 429: Too Many Requests",
        "Request failed: network error while fetching",
        '{"error": "Network error"}',
        '{"message": "Internal server error", "issues": []}',
    )
}


@pytest.mark.parametrize("case", STANDARD.values(), ids=STANDARD)
def test_a_standard_message_is_a_finding_and_a_failure(scored: Scored, case: int):
    assert outcome_and_findings(scored, case) == ("hidden_error", 1)


ABOUT = {
    said: result(said)
    for said in (
        "Network error codes: 1, 2",
        "All about network errors",
        "Network error " + "x" * 600,
        '{"message": "Network error logs"}',
    )
}


@pytest.mark.parametrize("case", ABOUT.values(), ids=ABOUT)
def test_a_text_about_such_messages_is_neither(scored: Scored, case: int):
    assert outcome_and_findings(scored, case) == ("ok", 0)


MARKED = result("Network error", isError=True)


def test_an_error_that_is_marked_is_a_tool_error(scored: Scored):
    assert outcome_and_findings(scored, MARKED) == ("tool_error", 0)
