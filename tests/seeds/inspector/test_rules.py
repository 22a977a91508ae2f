"""Every rule of the seed score agrees with its examples."""

from types import SimpleNamespace

import pytest

from mcptally.seeds.inspector import document, inspector
from mcptally.seeds.inspector.model import ScenarioResult, ValidationContext
from mcptally.seeds.inspector.rows import FILES, rule_rows
from tests.seeds.inspector import rollup
from tests.seeds.inspector.test_columns import one

SHOWN = {
    "mcp_code": ("code: {}", "mcp_code"),
    "mcp_code_named": ("code: {}", "mcp_code"),
    "pattern": ("Xx{}xX", "business_pattern"),
    "http_status": ("Xx{}xX", "http_status"),
    "structured_what": ("Xx{}xX type :", "structured_error"),
    "structured_kind": ("Xx{}xX error :", "structured_error"),
    "structured_mark": ("Xx{}xX error code", "structured_error"),
    "test_word": ("Xx{}xX invalid", "validates_test_data"),
    "test_complaint": ("demo Xx{}xX", "validates_test_data"),
    "test_value": ("Xx{}xX", "validates_test_data"),
}
"""Part → a text with an entry `{}` of its list, and the factor for which the entry counts."""
TEXT_PARTS = {*SHOWN, "test_shape", "strong", "high_confidence", "tool_keyword"}
LETTERS = {
    "h": ("fully_working", 100, True, "happy_path"),
    "b": ("fully_working", 100, True, "happy_path"),
    "E": ("fully_working", 100, True, "error_case"),
    "x": ("broken", 0, False, "happy_path"),
    "-": ("broken", 0, False, "happy_path"),
}
"""Letters for scenarios in a row's examples: passed, passed as a business error, passed as an error
case, failed, not executed."""

INTERPRETATIONS = {"document": document, "inspector": inspector}
ROWS = [(interpretation, row) for interpretation in FILES for row in rule_rows(interpretation).rows]


def scenarios(letters):
    return [
        ScenarioResult(
            classification, confidence, valid, category if letter != "x" else "edge_case",
            executed=letter != "-",
        )
        for letter in letters.replace(" ", "")
        for classification, confidence, valid, category in [LETTERS[letter]]
    ]  # fmt: skip


def decide(interpretation, example):
    if interpretation == "inspector":
        return inspector.decide(example["text"].lower(), example["tool"])
    return document.decide(example["text"], example["tool"], example.get("input", {}))


def response_class(interpretation, example):
    if "rpc" in example:
        row = one("protocol_error", error_code=example["rpc"], error_text=example["message"])
        return SimpleNamespace(
            classification=row["seed_classification"], confidence=row["seed_confidence"]
        )
    response = {k: v for k, v in example.items() if k != "outputSchema"}
    tool = {"name": "weather"}
    if "outputSchema" in example:
        tool["outputSchema"] = example["outputSchema"]
    return INTERPRETATIONS[interpretation].validate(ValidationContext(tool=tool, response=response))


def holds(interpretation, row, example):
    if row.part in TEXT_PARTS:
        return row.holds(example.lower())
    if row.part in ("test_id_name", "test_id_value"):
        return row.holds(example)
    if row.part == "structured_error":
        return document.is_structured_error(example)
    if row.part == "threshold":
        return decide(interpretation, example).threshold == row.threshold
    if row.part in ("total", "alone"):
        return decide(interpretation, example).confidence == example["confidence"]
    if row.part == "classification":
        if "overall" in example:
            result = ScenarioResult(row.classification, example["confidence"], is_valid=True)
            return (
                INTERPRETATIONS[interpretation].overall_confidence([result]) == example["overall"]
            )
        result = response_class(interpretation, example)
        same = result.classification == row.classification
        return same and (row.value is None or result.confidence == row.value)
    if row.part == "rejected":
        result = inspector.failed_call(example["throws"], example["category"])
        return (result.classification, result.confidence) == (row.classification, row.value)
    if row.part == "status":
        results = scenarios(example["scenarios"])
        status = INTERPRETATIONS[interpretation].scenario_status(results, len(results)).status
        return status == row.classification
    assert row.part == "health"
    letters = example["health"]
    passed = sum(letter != "x" for letter in letters)
    return rollup.health(len(letters), passed, letters.count("b")) == row.title


@pytest.mark.parametrize(("interpretation", "row"), ROWS, ids=[row.id for _, row in ROWS])
def test_a_row_fires_and_stays_silent_on_its_own_examples(interpretation, row):
    assert [e for e in row.fires if not holds(interpretation, row, e)] == []
    assert [e for e in row.silent if holds(interpretation, row, e)] == []


def test_every_list_entry_counts_for_its_factor_in_any_case_and_any_place():
    entries = [(rules, row, each.upper()) for rules, row in ROWS for each in row.members]
    for rules, row, member in entries:
        if row.part in ("strong", "high_confidence"):
            found = decide(rules, {"text": f"duplicate Xx{member}xX", "tool": "frobnicate"})
            assert found.threshold == row.threshold
        elif row.part == "tool_keyword":
            assert decide(rules, {"text": "quiet", "tool": f"X{member}X"}).validation_expected
        elif row.part in SHOWN:
            template, factor = SHOWN[row.part]
            for text, counts in ((member, True), ("", False)):
                example = {"text": template.format(text), "tool": "frobnicate"}
                assert getattr(decide(rules, example), factor) == counts, (row.id, member)


@pytest.mark.parametrize("code", sorted(document.CODES))
def test_each_of_the_five_mcp_codes_makes_a_json_rpc_error_business_in_the_document(code):
    row = one("protocol_error", tool="frobnicate", error_code=code, error_text="quiet")
    assert row["seed_factor_mcp_code"]
    assert row["seed_is_business_error"]
    assert row["seed_classification"] == "fully_working"


def test_the_lists_have_the_lengths_of_their_sources():
    program, written = rule_rows("inspector"), rule_rows("document")
    assert len(program.members("pattern")) == 97
    assert len(program.members("tool_keyword")) == 57
    assert len(program.members("http_status")) == 7
    # 'quota exceeded' is in two lists of the document
    assert len(written.members("pattern")) == 15 + 11 + 9 + 8 + 10 + 4 - 1
    assert len(written.members("tool_keyword")) == 54
    assert len(written.members("high_confidence")) == 16
    assert {int(row.value) for row in written.part("mcp_code")} == {
        *(-32600, -32601, -32602, -32603, -32700)
    }


def test_the_differences_between_the_lists_are_the_ones_the_contradictions_page_names():
    program, written = rule_rows("inspector"), rule_rows("document")
    extra = set(program.members("pattern")) - set(written.members("pattern"))
    high = set(written.members("high_confidence"))
    assert len(extra - high) == 37
    assert set(program.members("tool_keyword")) - set(written.members("tool_keyword")) == {
        *("entities", "observation", "map")
    }


def test_the_members_of_rows_are_in_lower_case():
    for _, row in ROWS:
        if row.part in TEXT_PARTS:
            assert [m for m in row.members if m != m.lower()] == [], row.id
