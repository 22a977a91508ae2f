"""The two original validators of the validation protocol, including their bugs."""

# ruff: noqa: E501  (tables of cases, one a line)

import copy

import pytest

from tests.seeds.cases import cases
from tests.seeds.validation_protocol import reference_validators

CASES = cases("validation-protocol")
SCHEMAS = [c for c in CASES if c.values[0].get("kind", "schema") == "schema"]
HANDLED = [c for c in CASES if c.values[0].get("kind") == "handle_validate"]


@pytest.mark.parametrize("case", SCHEMAS)
def test_the_documents_listing_gives_the_recorded_answer(case):
    try:
        tools = {case["tool"]: case["inputSchema"]}
        answer = reference_validators.document_answer(tools, case["tool"], case["arguments"])
    except reference_validators.ThrownError as error:
        answer = {"__throws": str(error)}
    assert answer == case["oracle"]["doc_basic"]


@pytest.mark.parametrize("case", SCHEMAS)
def test_the_programs_schema_check_gives_the_recorded_answer(case):
    answer = reference_validators.program_schema_check(case["inputSchema"], case["arguments"])
    assert answer == case["oracle"]["ncp_schema_only"]


@pytest.mark.parametrize("case", HANDLED)
def test_the_program_gives_the_recorded_answer(case):
    answer = reference_validators.program_answer(case["args"], case["catalog"], case["internal"])
    assert _without_advice(answer) == _without_advice(case["oracle"]["result"])


def _without_advice(answer):
    # The program goes on to list the schedules it reads: its own text, which is not copied.
    answer = copy.deepcopy(answer)
    answer["errors"] = [
        "Invalid schedule" if error.startswith("Invalid schedule: ") else error
        for error in answer["errors"]
    ]
    return answer


def test_the_document_reports_an_unknown_tool():
    for tool, shown in (("x", "x"), (None, "null"), (1.0, "1")):
        assert reference_validators.document_answer({}, tool, {}) == {
            "valid": False,
            "errors": [f"Unknown tool: {shown}"],
            "warnings": [],
        }


@pytest.mark.parametrize(
    ("schema", "given", "message"),
    [
        (None, {}, "Cannot read properties of null (reading 'required')"),
        ({"required": ["a"]}, 1.5, "Cannot use 'in' operator to search for 'a' in 1.5"),
        ({"required": [{}]}, None, "Cannot use 'in' operator to search for '#<Object>' in null"),
        ({"required": [["a"]]}, "x", "Cannot use 'in' operator to search for '[object Array]' in x"),
        ({"required": 1}, {}, "number 1 is not iterable (cannot read property Symbol(Symbol.iterator))"),
        ({"required": {"a": 1}}, {}, "object is not iterable (cannot read property Symbol(Symbol.iterator))"),
        ({"required": [{"toString": 1}]}, {}, "Cannot convert object to primitive value"),
        ({"properties": {}}, None, "Cannot convert undefined or null to object"),
        ({}, {"a": 1}, "Cannot read properties of undefined (reading 'a')"),
    ],
)  # fmt: skip
def test_the_document_throws_what_node_throws(schema, given, message):
    with pytest.raises(reference_validators.ThrownError) as thrown:
        reference_validators.document_answer({"t": schema}, "t", given)
    assert str(thrown.value) == f"TypeError: {message}"


@pytest.mark.parametrize(
    ("schema", "given", "errors"),
    [
        ({"required": ["0", "01", "length"]}, ["x"], ["Missing required parameter: 01"]),
        ({"properties": [{"type": "number"}]}, {"0": 1}, []),
        ({"properties": "ab"}, {"toString": 1}, ['Parameter "toString": expected undefined, got number']),
    ],
)  # fmt: skip
def test_the_document_reads_members_as_javascript_does(schema, given, errors):
    schema = {"properties": {"0": {"type": "string"}}} | schema
    answer = reference_validators.document_answer({"t": schema}, "t", given)
    assert answer["errors"] == errors


@pytest.mark.parametrize(
    ("schedule", "readable"),
    [
        ("every 5 minutes", True),
        ("every 75 minutes", False),
        ("every 75 minutes on monday", True),
        ("In 2 Hours ", True),
        ("in 2 weeks", False),
        ("0 9 * * *", False),
        ("2025-01-01T00:00:00Z", False),
        ("mon-fri", True),
    ],
)
def test_a_schedule_is_accepted_if_the_program_accepts_it(schedule, readable):
    assert reference_validators.accepts_schedule(schedule) == readable


@pytest.mark.parametrize(
    ("schema", "given", "error"),
    [
        ({"properties": {"n": {"type": "integer"}}}, {"n": 1.0}, None),
        ({"properties": {"n": {"type": "integer"}}}, {"n": 1.5}, 'Parameter "n" must be an integer, got 1.5'),
        ({"properties": {"o": {"type": "object"}}}, {"o": None}, None),
        ({"properties": {"e": {"enum": [1]}}}, {"e": True}, 'Parameter "e" must be one of: 1'),
        ({"properties": {"e": {"enum": [{}]}}}, {"e": {}}, 'Parameter "e" must be one of: [object Object]'),
    ],
)  # fmt: skip
def test_values_are_compared_as_javascript_compares_them(schema, given, error):
    assert reference_validators.program_schema_check(schema, given)["errors"] == (
        [error] if error else []
    )
