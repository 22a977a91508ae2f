"""The columns agree with the reference on the case files, real traffic and irregular replies."""

import json

import polars as pl
import pytest

from mcptally.jsonschemas.validate import validate_calls
from mcptally.messages.tool_definitions import add_definitions
from mcptally.pipeline.partition import gather
from mcptally.seeds import javascript
from mcptally.seeds.inspector import columns as inspector_columns
from mcptally.seeds.inspector import document, inspector, single, wording
from mcptally.seeds.inspector.model import ValidationContext
from mcptally.tables.stages import Definitions, Judged
from tests import corpus
from tests.seeds.cases import FIELDS, column, decided, lines
from tests.transcripts import exchange, opened, request, result, write

INTERPRETATIONS = {"seed": "document", "inspector": "inspector"}


def judged(files):
    part = gather(files, [path.name for path in files])
    known = part.summary
    calls = add_definitions(part.calls, known.listed, known.listed)
    return validate_calls(calls, known.definitions), known.definitions


def scored(tmp_path, conversations):
    """Return the score of each conversation: a listed tool, the arguments of a call, its reply."""
    events = []
    for name, (tool, arguments, reply) in conversations.items():
        messages = [request(0, "tools/list"), result(0, tools=[tool])]
        messages.append(request(1, "tools/call", name=tool["name"], arguments=arguments))
        messages.append({"jsonrpc": "2.0", "id": 1, "result": reply})
        events += [opened(name, server=name), *exchange(*messages, recording=name)]
    calls, definitions = judged([write(tmp_path / "t.jsonl", events)])
    calls = calls.filter(pl.col("method") == "tools/call")
    calls = calls.with_columns(scenario=pl.lit(None, pl.String))
    rows = inspector_columns.add_seed_scores(calls, definitions)
    return {row["recording"]: row for row in rows.iter_rows(named=True)}


def printable(texts):
    return [javascript.printable(text) for text in texts]


@pytest.mark.slow
def test_the_table_gives_the_programs_score_for_every_case_that_can_be_sent(tmp_path):
    cases = {}
    for line in lines("inspector"):
        case = json.loads(line)
        try:
            json.dumps(case, ensure_ascii=False, allow_nan=False).encode()
        except ValueError:
            continue  # Half a character is not strict JSON: a recorder stores it as `raw`.
        cases[case["id"]] = case
    assert len(cases) > 1400
    rows = scored(tmp_path, {n: (c["tool"], c["input"], c["response"]) for n, c in cases.items()})
    wrong = []
    for name, case in cases.items():
        row, oracle = rows[name], case["oracle"]
        expected, business = oracle["validateResponse"], oracle["isBusinessLogicError"]
        is_decided = row["inspector_is_error"] is not False
        if "__throws" in expected:
            agrees = row["inspector_classification"] is None and row["inspector_error"]
        else:
            agrees = (
                row["inspector_classification"] == expected["classification"]
                and row["inspector_confidence"] == expected["confidence"]
                and row["inspector_is_valid"] == expected["isValid"]
                and row["inspector_is_error"] == expected["isError"]
                and row["inspector_issues"] == printable(expected["issues"])
                and row["inspector_evidence"] == printable(expected["evidence"])
            )
        if isinstance(business, dict) or not is_decided:
            agrees = agrees and row["inspector_is_business_error"] is None
            agrees = agrees and (row["inspector_error"] or not is_decided)
        else:
            agrees = agrees and row["inspector_is_business_error"] is business
            agrees = agrees and has_factors(row, case["factors"])
        if not agrees:
            wrong.append((name, case["tool"], case["response"]))
    assert wrong == []


def has_factors(row, program):
    """Return whether a row has the program's factors, which it evaluates unless a code decides."""
    return program["earlyReturn"] or all(
        row[f"inspector_{column(field)}"] == program[name] for name, field in FIELDS.items()
    )


def expected_row(row, schema):
    """Return the result of the single-call functions for a reply, as a row of the columns."""
    tool = {"name": row["tool"]}
    if schema is not None:
        tool["outputSchema"] = javascript.parse(schema)
    arguments = row["arguments"]
    context = ValidationContext(
        tool=tool,
        input=javascript.parse(arguments) if arguments else {},
        response=javascript.parse(row["response"]),
    )
    found = {}
    for prefix, rules in INTERPRETATIONS.items():
        result = single.validate_response(context, rules=rules)
        for name in ("classification", "confidence", "is_valid", "is_error"):
            found[f"{prefix}_{name}"] = getattr(result, name)
        for name in ("issues", "evidence"):
            known = result.classification is not None
            found[f"{prefix}_{name}"] = printable(getattr(result, name)) if known else None
        if result.is_error is not False:
            decision = single.business_decision(context, rules=rules)
            found[f"{prefix}_is_business_error"] = decision.is_business_error
            for field in FIELDS.values():
                found[f"{prefix}_{column(field)}"] = getattr(decision, field)
    return found


@pytest.mark.slow
def test_tables_and_single_calls_agree_on_all_recorded_traffic():
    calls, definitions = judged(corpus.recordings()[:80:3])
    calls = calls.with_columns(scenario=pl.lit(None, pl.String))
    rows = inspector_columns.add_seed_scores(calls, definitions)
    assert rows.height == calls.height
    assert rows.get_column("call_id").equals(calls.get_column("call_id"))
    answered = rows.filter(
        pl.col("tool").is_not_null()
        & pl.col("outcome").is_in(["ok", "tool_error", "hidden_error"])
        & pl.col("response").is_not_null()
    ).join(definitions.select("definition", "output_schema"), on="definition", how="left")
    assert answered.height > 2_000
    keys = ["tool", "output_schema", "arguments", "response", *inspector_columns.COLUMNS]
    wrong = []
    for row in answered.select(keys).unique(maintain_order=True).iter_rows(named=True):
        expected = expected_row(row, row["output_schema"])
        if any(row[name] != value for name, value in expected.items()):
            differs = {n: (row[n], v) for n, v in expected.items() if row[n] != v}
            wrong.append((row["tool"], row["arguments"], row["response"][:200], differs))
    assert wrong == []


ERROR = {"name": "weather"}


def failed(text):
    return {"isError": True, "content": [{"type": "text", "text": text}]}


@pytest.mark.slow
def test_evidence_is_cut_at_100_utf16_units_and_a_lone_surrogate_is_replaced(tmp_path):
    ends = ("", " tail", "\U0001f600 tail", "x\U0001f600")
    texts = ["e" * length + end for length in (98, 99, 100, 101) for end in ends]
    rows = scored(tmp_path, {text: (ERROR, {}, failed(text)) for text in texts})
    assert rows.keys() == set(texts)
    for text, row in rows.items():
        kept = text.encode("utf-16-le")[:200].decode("utf-16-le", "replace")
        assert row["inspector_evidence"][1] == f"Error message: {kept}"
        assert row["seed_evidence"][-1] == f"Error message: {kept}"


def test_an_error_longer_than_the_decoder_keeps_is_examined_to_its_end(tmp_path):
    text = "x" * 70_000 + " file not found"
    row = scored(tmp_path, {"a": (ERROR, {}, failed(text))})["a"]
    assert row["inspector_is_business_error"] is True
    assert row["seed_is_business_error"] is True


def calls_with(outcome, **values):
    row = {"outcome": outcome, "tool": "weather"} | values
    return pl.DataFrame([row], schema=Judged.schema())


def one(outcome, **values):
    calls = calls_with(outcome, **values)
    return inspector_columns.add_seed_scores(calls, Definitions.empty()).row(0, named=True)


@pytest.mark.parametrize("outcome", ["timeout", "no_response"])
@pytest.mark.parametrize("scenario", [None, "happy_path", "error_case"])
def test_an_unanswered_call_is_broken_in_both_interpretations(outcome, scenario):
    row = one(outcome, scenario=scenario)
    for interpretation in INTERPRETATIONS:
        assert row[f"{interpretation}_classification"] == "broken"
        assert row[f"{interpretation}_confidence"] == 0
        assert row[f"{interpretation}_is_valid"] is False
        assert row[f"{interpretation}_is_error"] is True
        assert row[f"{interpretation}_is_business_error"] is None
    assert row["inspector_issues"] == ["Execution error: Timeout"]
    assert row["seed_issues"] == ["No response"]


@pytest.mark.parametrize(
    ("outcome", "values"),
    [
        ("cancelled", {}),
        ("ok", {"tool": None, "response": '{"content":[]}'}),
        ("tool_error", {"is_error": "true"}),
    ],
    ids=["cancelled", "another method", "a reply over the recorder's size limit"],
)
def test_other_calls_have_no_score(outcome, values):
    row = one(outcome, **values)
    assert {row[name] for name in inspector_columns.COLUMNS} == {None}


@pytest.mark.parametrize("outcome", ["input_required", "task"])
def test_only_the_program_scores_an_interim_answer(outcome):
    row = one(outcome, response='{"resultType":"x"}', content_kind="absent", blocks_plain=True)
    assert {row[name] for name in inspector_columns.COLUMNS if name.startswith("seed_")} == {None}
    assert row["inspector_classification"] == "broken"
    assert row["inspector_issues"] == [wording.NO_CONTENT]


@pytest.mark.parametrize(
    ("scenario", "message", "classification", "confidence", "evidence"),
    [
        ("happy_path", "boom", "broken", 0, []),
        (None, "boom", "broken", 0, []),
        ("error_case", "boom", "partially_working", 80, [wording.REJECTED]),
        ("error_case", "Timeout: boom", "broken", 0, []),
    ],
)
def test_a_json_rpc_error_is_scored_as_an_exception_of_the_program(
    scenario, message, classification, confidence, evidence
):
    row = one("protocol_error", error_code=-32602, error_text=message, scenario=scenario)
    assert row["inspector_classification"] == classification
    assert row["inspector_confidence"] == confidence
    assert row["inspector_is_valid"] is (confidence == 80)
    assert row["inspector_is_error"] is True
    assert row["inspector_issues"] == [f"Execution error: MCP error -32602: {message}"]
    assert row["inspector_evidence"] == evidence
    assert row["inspector_is_business_error"] is None
    reference = inspector.failed_call(f"MCP error -32602: {message}", scenario)
    assert (reference.classification, reference.confidence) == (classification, confidence)


@pytest.mark.slow
@pytest.mark.parametrize("code", [-32602, -32000, None])
@pytest.mark.parametrize("tool", ["weather", "get_item"])
@pytest.mark.parametrize("message", ["boom", "item 17 not found", "", "500"])
def test_the_table_gives_the_documents_score_for_a_json_rpc_error(code, tool, message):
    arguments = '{"itemId": 17}'
    row = one("protocol_error", tool=tool, error_code=code, error_text=message, arguments=arguments)
    decision = document.decide(message, tool, {"itemId": 17}, code=code, structured=True)
    if business := decision.is_business_error:
        expected = ("fully_working", 100, [])
        evidence = [wording.RESPONDED_ERROR, f"Error message: {message or 'Unknown error'}"]
    else:
        said = f"MCP error {'undefined' if code is None else code}: {message}"
        expected, evidence = ("connectivity_only", 30, [f"Call failed: {said}"]), []
    assert tuple(row[f"seed_{name}"] for name in ("classification", "confidence", "issues")) == (
        expected
    )
    assert row["seed_evidence"] == evidence
    assert row["seed_is_valid"] == row["seed_is_business_error"] == business
    assert row["seed_business_confidence"] == decision.confidence
    assert row["seed_threshold"] == decision.threshold
    assert row["seed_factor_mcp_code"] == decision.mcp_code
    assert row["seed_factor_structured_error"] is True
    assert row["seed_factor_validates_test_data"] == decision.validates_test_data


def test_where_the_program_throws_the_classification_is_null_and_the_column_says_why(tmp_path):
    replies = {
        "number": failed(5),
        "list": [],
        "truth": True,
        "missing": {"isError": True},
    }
    rows = scored(tmp_path, {name: (ERROR, {}, result) for name, result in replies.items()})
    assert rows["number"]["inspector_classification"] is None
    assert "substring" in rows["number"]["inspector_error"]
    assert rows["truth"]["inspector_classification"] is None
    assert rows["list"]["inspector_classification"] == "broken"
    assert rows["missing"]["inspector_classification"] == "fully_working"
    assert rows["missing"]["inspector_is_business_error"] is None
    assert "toLowerCase" in rows["missing"]["inspector_error"]
    assert {row["seed_error"] for row in rows.values()} == {None}


def test_without_calls_there_are_no_rows():
    empty = inspector_columns.add_seed_scores(calls_with("ok").clear(), Definitions.empty())
    assert empty.height == 0
    assert set(inspector_columns.COLUMNS) <= set(empty.columns)


@pytest.mark.parametrize(
    ("text", "threshold"),
    [
        ("invalid path", 0.5),
        ("invalid path: no such file or directory", 0.2),
        ("a free trial of the payment form", 0.5),
        ("payment not found", 0.2),
    ],
)
def test_words_of_high_confidence_count_for_the_program_only_beside_a_pattern(text, threshold):
    assert inspector.decide(text, "t").threshold == threshold
    assert decided(text, "t")["inspector_threshold"] == threshold
