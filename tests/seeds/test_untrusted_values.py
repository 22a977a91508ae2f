"""No value from an untrusted server causes an exception in a check of the seed documents."""

import functools
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mcptally as mt
from mcptally.analytics import dry_run
from mcptally.seeds.redmine import content, list_counts, xml
from mcptally.seeds.ui_probe import envelopes, test_runs, tool_data
from mcptally.seeds.validation_logic import arguments, normalised_error, structured_error
from mcptally.seeds.validation_protocol import argument_semantics, cron, schema_errors
from mcptally.seeds.validation_protocol import texts as validation_texts
from mcptally.tables.stages import Judged
from tests.transcripts import (
    c2s,
    call,
    event,
    exchange,
    opened,
    request,
    result,
    s2c,
    text,
    write,
)

pytestmark = pytest.mark.slow

NAMES = st.sampled_from(
    """content isError type text data mimeType resource uri success error runId flow errors findings
    metrics result target valid warnings category code status total_count limit offset params args
    _meta properties required enum format url sql cron path summary total checks isValid pass
    failures confidence error_detail tool toString a""".split()  # noqa: SIM905  (forty names)
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["text", "image", "audio", "resource", "object", "string", "fill", "passed"])
    | st.sampled_from(["<?xml version='1.0'?><a>", "AAAA", "image/png", "SELECT * FROM t", "uri"])
    | st.sampled_from(["https://", "* * * * *", '{"args":{}}', "E_NETWORK", "network", "\ud800"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=25,
)


def _text(value):
    return json.dumps(value)


CHECKS = {
    "document": lambda value: list(content.violations(value, "document")),
    "program": lambda value: list(content.violations(value, "program")),
    "blocks": lambda value: list(content.block_violations(value)),
    "judged": lambda value: (
        list(envelopes.violations(value, is_error=None)) if isinstance(value, dict) else None
    ),
    "run": lambda value: list(test_runs.violations(value, "")) if isinstance(value, dict) else None,
    "shapes": lambda value: (test_runs.program(value), test_runs.document(value)),
    "determined": test_runs.determined,
    "simple": lambda value: [
        list(tool_data.violations(tool, value, "")) for tool in tool_data.TOOLS
    ],
    "answered": lambda value: validation_texts.parse_answer(_text(value)),
    "asked": lambda value: validation_texts.parse_request(_text(value)),
    "vague": lambda value: validation_texts.is_vague("Invalid path", value),
    "declared": lambda value: validation_texts.schema_differences(_text(value)),
    "regular": structured_error.read,
    "unwrapped": arguments.unwrapped,
    "listed": lambda value: list(list_counts.object_messages(value)),
    "xml": lambda value: list(xml.check(f"<?xml version='1.0'?>{value}")),
    "cron": lambda value: (cron.looks_like(str(value)), cron.syntax_error(str(value))),
    "meaning": lambda value: list(argument_semantics.semantic_remarks(_text(value), value)),
}


@pytest.mark.parametrize("name", CHECKS)
@given(value=VALUES)
@settings(max_examples=settings.default.max_examples // 2, deadline=None)
def test_no_value_makes_a_check_raise(name, value):
    CHECKS[name](value)


@given(schema=VALUES, value=VALUES)
@settings(max_examples=2 * settings.default.max_examples, deadline=None)
def test_no_schema_makes_a_dry_run_raise(schema, value):
    list(schema_errors.schema_remarks(_text(schema), value))
    list(argument_semantics.semantic_remarks(_text(schema), value))


def test_a_lone_surrogate_in_an_argument_does_not_stop_a_dry_run(scored: Path):
    store = mt.open_store(scored)
    for name in ("url", "sql", "day", "other", "\ud800"):
        answer = dry_run.validate(store, server="demo", tool="t", arguments={name: "a\ud800"})
        assert answer.valid == (name not in {"sql", "day"}), name


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dry")
    members = {name: {"type": "string"} for name in ("url", "sql", "day")}
    members["day"]["format"] = "date"
    tools = [{"name": "t", "inputSchema": {"type": "object", "properties": members}}]
    messages = exchange(
        *(request(1, "tools/list"), result(1, tools=tools)),
        *(call(2, "t", keyword="foo", key="foo"), text(2, "foo: no such key", isError=True)),
    )
    path = write(folder / "a.jsonl", [opened(), *messages])
    return mt.score([path], out=folder / "store").out


def test_an_argument_called_keyword_is_not_a_key(scored: Path):
    store = mt.open_store(scored)
    ask = functools.partial(dry_run.validate, store, server="demo", tool="t")
    assert any(
        "the key 'foo' failed" in warning for warning in ask(arguments={"key": "foo"}).warnings
    )
    assert not any("failed" in warning for warning in ask(arguments={"keyword": "foo"}).warnings)


TOO_LARGE = 10**309 - 1
"""The largest integer that a transcript holds: JSON that no double holds."""


def test_values_that_no_column_can_hold_do_not_stop_scoring(tmp_path: Path):
    run = {"runId": "a", "target": {}, "flow": [{"latencyMs": TOO_LARGE}], "result": "passed"}
    run |= {"findings": {}, "errors": [], "metrics": {"totalTimeMs": TOO_LARGE}}
    half = json.dumps({"error": {"code": "E_X", "hint": "\ud800", "details": "\ud800"}})
    headers = {"mcp-name": "=?base64?é?=", "mcp-method": "tools/call"}
    answers = [
        ("probe", text(1, "ran", structuredContent=run)),
        ("infer_form", text(2, "form", structuredContent={"confidence": TOO_LARGE})),
        ("fill_and_submit", text(3, "sent")),
        ("half", text(4, half, isError=True)),
        ("header", text(5)),
    ]
    lines = [opened()]
    for number, (tool, answer) in enumerate(answers, start=1):
        more = {"scope": "x"} if tool == "header" else {}
        if more:
            told = {"phase": "request", "method": "POST", "path": "/", "headers": headers}
            lines.append(event("http", len(lines), dir="c2s", **more, **told))
        lines.append(c2s(len(lines), call(number, tool), **more))
        lines.append(s2c(len(lines), answer, **more))
    out = mt.score([write(tmp_path / "a.jsonl", lines)], out=tmp_path / "store").out
    asked = "SELECT tool, error_details FROM calls ORDER BY tool"
    rows = dict(mt.open_store(out).sql(asked).fetchall())
    assert rows.keys() == {tool for tool, _ in answers}
    assert rows["half"] == "\N{REPLACEMENT CHARACTER}"
    steps = mt.open_store(out).sql("SELECT latency_ms FROM ui_steps").fetchall()
    assert steps == [(None,)]


@pytest.mark.parametrize("member", ["hint", "details"])
def test_a_lone_surrogate_in_an_error_is_replaced(member: str):
    told = json.dumps({"error": {"code": "E_X", member: "a\ud800"}})
    row = {"outcome": "tool_error", "error_text": told, "text": told}
    errors = pl.DataFrame([row], schema=Judged.schema())
    (row,) = normalised_error.normalise_errors(errors).to_dicts()
    assert row[f"error_{member}"] == "a\N{REPLACEMENT CHARACTER}"


LONG = 60_000
ENDLESS = {
    "a MIME type of blanks": lambda: [
        violation.code
        for violation in content.block_violations(
            [{"type": "image", "data": "AAAA", "mimeType": "image/png" + "; a= " * LONG + '"'}]
        )
    ],
    "an error that says missing": lambda: validation_texts.is_vague("missing " * LONG, {}),
    "SQL of parentheses": lambda: [
        remark.level
        for remark in argument_semantics.semantic_remarks(
            _text({"properties": {"sql": {"type": "string"}}}), {"sql": "select " + "(" * 9000}
        )
    ],
    "tables in parentheses": lambda: argument_semantics.tables_in_sql(
        "select * from " + "(" * LONG
    ),
    "XML of escapes": lambda: [
        violation.code for violation in xml.check(f"<?xml version='1.0'?><a>{'&gt;' * 400_000}</a>")
    ],
}
SAID = (["content.mime_type"], True, ["unchecked"], set(), ["content.xml_encoding"])


@pytest.mark.parametrize(("ask", "said"), [*zip(ENDLESS.values(), SAID, strict=True)], ids=ENDLESS)
def test_input_written_to_take_exponential_time_is_checked_quickly(ask, said):
    """Each of these once took minutes or longer."""
    assert ask() == said
