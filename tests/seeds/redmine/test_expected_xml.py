"""Results that should be XML according to the server's other results or the definition."""

from pathlib import Path

import pytest

import mcptally as mt
from tests.scored_cases import Cases, Scored
from tests.transcripts import call, exchange, opened, request, result, text, write

pytestmark = pytest.mark.slow

CASES = Cases()

DECLARED = '<?xml version="1.0" encoding="UTF-8"?><issues/>'
BARE = "<issues/>"
BROKEN = "<issues><issue></issues>"
UNDECLARED, MALFORMED = "content.xml_undeclared", "content.xml_malformed"


def events(*texts: str, description: str = "", name: str = "r0", **members) -> list:
    tools = [{"name": "list", "description": description, "inputSchema": {"type": "object"}}]
    messages = [request("l", "tools/list"), result("l", tools=tools)]
    for number, said in enumerate(texts):
        messages += [call(number, "list"), text(number, said, **members)]
    return [opened(name, server="redmine"), *exchange(*messages, recording=name)]


def xml_findings(store: Path) -> list[str]:
    found = mt.open_store(store).sql(
        "SELECT rule FROM findings WHERE starts_with(rule, 'content.xml') ORDER BY file, line, rule"
    )
    return [rule for (rule,) in found.fetchall()]


def results(*texts: str, **members) -> int:
    return CASES.add(*events(*texts, **members))


@pytest.fixture(scope="module")
def scored(tmp_path_factory) -> Scored:
    return CASES.score(tmp_path_factory.mktemp("xml"))


@pytest.fixture(scope="module")
def found(scored):
    """Return the XML rules that a case breaks, in the order of its lines."""

    def rules(case: int) -> list[str]:
        rows = scored.rows("findings", case).sort("line", "rule")["rule"]
        return rows.filter(rows.str.starts_with("content.xml")).to_list()

    return rules


COMPARED = [
    ([DECLARED, BARE], [UNDECLARED]),
    ([DECLARED, BROKEN], [MALFORMED, UNDECLARED]),
    ([DECLARED, f"Result: {DECLARED}"], [UNDECLARED]),
    ([DECLARED, BARE, BARE, "no issues"], [UNDECLARED, UNDECLARED]),
    ([BARE, BROKEN], []),
    ([DECLARED, "no issues"], []),
    ([DECLARED, "<html><br></html>"], []),
    ([DECLARED, BARE, "a page", "a page", "a page"], []),
]


@pytest.mark.parametrize(
    ("case", "rules"),
    [(results(*texts), rules) for texts, rules in COMPARED],
    ids=[
        "without a declaration",
        "not well-formed",
        "text before the declaration",
        "half of the results are XML",
        "no result has a declaration",
        "a text",
        "HTML",
        "most results are text",
    ],
)
def test_a_result_is_compared_with_the_other_results_of_its_server(found, case, rules):
    assert found(case) == rules


NAMES_XML = results(BARE, "fine", description="Issues as XML.")


def test_a_definition_that_names_xml_is_enough(found):
    assert found(NAMES_XML) == [UNDECLARED]


ERRORS = {
    said: results(said, description="Issues as XML.", isError=True) for said in (DECLARED, BARE)
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS)
def test_an_error_is_not_expected_to_be_xml(scored, found, case):
    assert scored.rows("calls", case)["outcome"].to_list() == ["ok", "tool_error"]
    assert found(case) == []


def test_a_recording_is_scored_again_when_another_one_shows_that_results_are_xml(tmp_path: Path):
    archive = tmp_path / "archive"
    archive.mkdir()
    write(archive / "a.jsonl", events(BARE, name="r1"))
    write(archive / "other.jsonl", [opened("r2", server="another")])
    mt.score([archive], out=tmp_path / "store")
    assert xml_findings(tmp_path / "store") == []
    write(archive / "b.jsonl", events(DECLARED, name="r3"))
    assert mt.score([archive], out=tmp_path / "store").reused == 1
    assert xml_findings(tmp_path / "store") == [UNDECLARED]


NO_ENCODING = results('<?xml version="1.0"?><a/>')


def test_an_xml_declaration_without_an_encoding_is_a_finding(found):
    assert found(NO_ENCODING) == ["content.xml_encoding"]
