"""Results that should be XML according to the server's other results or the definition."""

from pathlib import Path

import pytest

import mcptally as mt
from tests.scored_cases import Cases
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


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return the XML rules that a case breaks, in the order of its lines."""
    scored = CASES.score(tmp_path_factory.mktemp("xml"))

    def rules(case: int) -> list[str]:
        rows = scored.rows("findings", case).sort("line", "rule")["rule"]
        return rows.filter(rows.str.starts_with("content.xml")).to_list()

    return rules


NAMES_XML = {"description": "Issues as XML."}
RESULTS = {
    "without a declaration": (events(DECLARED, BARE), [UNDECLARED]),
    "not well-formed": (events(DECLARED, BROKEN), [MALFORMED, UNDECLARED]),
    "text before the declaration": (events(DECLARED, f"Result: {DECLARED}"), [UNDECLARED]),
    "half are XML": (events(DECLARED, BARE, BARE, "no issues"), [UNDECLARED, UNDECLARED]),
    "none has a declaration": (events(BARE, BROKEN), []),
    "a text": (events(DECLARED, "no issues"), []),
    "HTML": (events(DECLARED, "<html><br></html>"), []),
    "most are text": (events(DECLARED, BARE, "a page", "a page", "a page"), []),
    "a definition that names XML": (events(BARE, "fine", **NAMES_XML), [UNDECLARED]),
    "an error": (events(BARE, isError=True, **NAMES_XML), []),
    "an error that is XML": (events(DECLARED, isError=True, **NAMES_XML), []),
    "without an encoding": (events('<?xml version="1.0"?><a/>'), ["content.xml_encoding"]),
}


@pytest.mark.parametrize(
    ("case", "rules"),
    [(CASES.add(*said), rules) for said, rules in RESULTS.values()],
    ids=RESULTS,
)
def test_a_result_is_compared_with_the_definition_and_other_results_of_its_server(
    found, case, rules
):
    assert found(case) == rules


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
