"""Standard messages of network and API errors in results that are not marked as errors."""

import pytest

from tests.scored_cases import Cases, Scored
from tests.transcripts import c2s, call, opened, s2c, text

pytestmark = pytest.mark.slow

CASES = Cases()


def result(said: str, **members) -> int:
    return CASES.add(opened(), c2s(1, call(1, "list")), s2c(2, text(1, said, **members)))


STANDARD = (
    "Network error",
    "network error!",
    "API error: 500 Internal server error",
    "Internal server error",
    "HTTP 429: Too Many Requests",
    "Request failed: network error while fetching",
    '{"error": "Network error"}',
    '{"message": "Internal server error", "issues": []}',
)
ABOUT = (
    "Network error codes: 1, 2",
    "All about network errors",
    "Network error " + "x" * 600,
    '{"message": "Network error logs"}',
)
RESULTS = {
    **{said: (result(said), "hidden_error", 1) for said in STANDARD},
    **{said: (result(said), "ok", 0) for said in ABOUT},
    "marked as an error": (result("Network error", isError=True), "tool_error", 0),
}


@pytest.fixture(scope="module")
def scored(tmp_path_factory) -> Scored:
    return CASES.score(tmp_path_factory.mktemp("phrases"))


@pytest.mark.parametrize(("case", "outcome", "findings"), RESULTS.values(), ids=RESULTS)
def test_a_standard_message_is_a_finding_and_a_failure_and_a_text_about_such_is_not(
    scored: Scored, case: int, outcome: str, findings: int
):
    assert scored.rows("calls", case)["outcome"].to_list() == [outcome]
    found = scored.rows("findings", case).filter(rule="content.error_without_is_error")
    assert found.height == findings
