"""Advice on definitions, the mistakes of each client, and faults by category."""

from pathlib import Path
from typing import Any

import pytest

import mcptally as mt
from mcptally import errors, rules
from mcptally.analytics import views
from mcptally.rules.findings import FindingRule
from tests.analytics.built_stores import OK, build, call, definition

SCHEMA = '{"type":"object","properties":{"time_zone":{"type":"string"},"limit":{"type":"integer"}}}'
BUSINESS = {"outcome": "tool_error", "verdict": "business", "reason": "validation"}
REFUSED = BUSINESS | {"input_schema_state": "valid"}
INVALID = BUSINESS | {"input_schema_state": "invalid"}
VALID = {"outcome": "ok", "input_schema_state": "valid"}


def smell(rule: str, about: dict[str, Any], argument: str | None = None) -> dict[str, Any]:
    path = "/description" if argument is None else f"/inputSchema/properties/{argument}"
    return {
        "rule": f"definition.{rule}",
        "path": path,
        "message": rule,
        **{name: about[name] for name in ("server", "tool", "definition")},
    }


def test_the_advice_is_about_every_smell() -> None:
    smells = {rule.id for rule in rules.load(FindingRule, "definitions-smells.toml")}
    text = views.all_texts()["_smells"]
    assert {word for word in text.split("'") if word.startswith("definition.")} == smells | {
        "definition.description_missing"
    }


@pytest.fixture(scope="module")
def advice(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, dict[str, Any]]:
    """Answer of `definition_advice` by argument, for one tool with refusals of every kind."""
    about = definition("t", input_schema=SCHEMA)
    of = {"definition": about["definition"]}
    by_name = {"error_text": "Invalid timeZone", "template": "a", "arguments": "{}"}
    by_value = {
        "error_text": "cannot use Mars/X",
        "template": "b",
        "arguments": '{"time_zone":"Mars/X"}',
    }
    by_schema = {"input_schema_path": "/limit", "input_schema_error": "is a string, not integer"}
    by_absence = {"input_schema_path": "", "input_schema_error": "lacks the member 'limit'"}
    whole = {"input_schema_path": "", "input_schema_error": "is an array, not object"}
    calls = [
        *(call(n, **of, **REFUSED, **by_name) for n in range(3)),
        *(call(n, **of, **REFUSED, **by_value) for n in range(2)),
        call(0, **of, **INVALID, **by_schema, arguments='{"limit":"x"}', error_text="no"),
        call(0, **of, **INVALID, **by_absence, error_text="no"),
        call(0, **of, **INVALID, **whole, error_text="no"),
        call(0, **of, **REFUSED, error_text="Bad input", template="c"),
        *(call(n, **of, **VALID) for n in range(10)),
        call(0, "u", **REFUSED, error_text="time zone", template="a"),
    ]
    findings = [
        smell("parameter_undescribed", about, "time_zone"),
        smell("format_undocumented", about, "time_zone"),
        smell("limits_unstated", about, "limit"),
        smell("description_long", about),
    ]
    store = build(tmp_path_factory.mktemp("advice"), calls, [about], findings=findings)
    return {row["argument"]: row for row in store.ask("definition_advice").pl().to_dicts()}


def test_a_message_with_the_name_or_the_value_of_an_argument_concerns_it(advice) -> None:
    row = advice["time_zone"]
    assert (row["refused"], row["calls"], row["sessions"]) == (5, 19, 3)
    assert row["refused_share"] == pytest.approx(5 / 19)
    assert row["refused_share_low"] < 5 / 19 < row["refused_share_high"]
    assert row["advice"] == "describe it; state its format, with an example"
    assert row["message"] == "Invalid timeZone"


def test_a_refusal_concerns_the_argument_that_the_schema_refuses_or_the_description(advice) -> None:
    refused = [(argument, row["refused"]) for argument, row in advice.items()]
    assert refused == [("time_zone", 5), ("limit", 2), (None, 1)], "most refused calls first"
    assert advice[None]["message"] == "Bad input"


@pytest.mark.slow
def test_advice_reads_smells_that_were_listed_before_the_time_asked_about(tmp_path: Path) -> None:
    about = definition("t", input_schema=SCHEMA)
    refused = call(0, definition=about["definition"], **REFUSED, error_text="bad limit")
    found = smell("limits_unstated", about, "limit") | {"recording": "earlier", "seq": 1}
    store = build(tmp_path, [refused], [about], findings=[found])
    assert store.ask("definition_advice", since="2026-01-01").pl()["refused"].to_list() == [1]


def answers(store: mt.Store) -> dict[tuple[str, str], dict[str, Any]]:
    rows = store.ask("client_mistakes").pl().to_dicts()
    return {(row["client"], row["mistake"]): row for row in rows}


def test_clients_are_compared_on_tools_that_both_called(tmp_path: Path) -> None:
    wrong = INVALID | {"input_schema_error": "is null, not string", "input_schema_path": "/a"}
    a, b = {"client": "a", "client_version": "1"}, {"client": "b", "client_version": "1"}
    calls = [
        *(call(f"a{n}", "shared", **a, **(wrong if n < 5 else VALID)) for n in range(10)),
        *(call(f"a{n}", "own", **a, **wrong) for n in range(10)),
        *(call(f"b{n}", "shared", **b, **(wrong if n < 2 else VALID)) for n in range(20)),
        *(call(f"b{n}", "rare", **b, **wrong) for n in range(20)),
        call("a0", "rare", **a, **VALID),
    ]
    found = answers(build(tmp_path, calls))
    mine = found["a", "wrong_type"]
    assert (mine["mistakes"], mine["calls"], mine["tools"], mine["sessions"]) == (5, 11, 2, 10)
    # b is wrong in 10 % of the calls to `shared`, of which a made ten, and always in `rare`.
    assert mine["others_rate"] == pytest.approx((10 * 0.1 + 1 * 1) / 11)
    assert mine["others_rate_low"] < mine["others_rate"] < mine["others_rate_high"]
    assert found["b", "wrong_type"]["others_rate"] == pytest.approx((20 * 0.5 + 20 * 0) / 40)
    assert found["a", "invented_argument"]["mistakes"] == 0


@pytest.mark.slow
def test_models_are_compared_where_a_log_names_them_and_filters_choose_rows(tmp_path: Path) -> None:
    wrong = INVALID | {"input_schema_error": "is null, not string", "input_schema_path": "/a"}
    calls = [
        *(call(f"a{n}", model="big", **(wrong if n < 1 else VALID)) for n in range(10)),
        *(call(f"b{n}", model="small", **(wrong if n < 5 else VALID)) for n in range(10)),
        *(call(f"c{n}", client="c", model="small", **VALID) for n in range(10)),
    ]
    store = build(tmp_path, calls)
    wrong_type = store.ask("client_mistakes").pl().filter(mistake="wrong_type")
    names = ("client", "client_version", "model", "mistakes", "calls", "others_rate")
    assert wrong_type.select(names).sort("mistakes", descending=True).rows() == [
        (None, None, "small", 5, 10, 0.05),
        (None, None, "big", 1, 10, 0.25),
        ("c", None, "small", 0, 10, 0.3),
    ]
    small = store.ask("client_mistakes", model="small").pl().filter(mistake="wrong_type")
    assert small.rows() == wrong_type.filter(model="small").rows()
    only = store.ask("client_mistakes", model="small", client="c").pl()
    assert only["client"].unique().to_list() == ["c"]
    assert store.ask("tool_scores", model="small").pl()["calls"].to_list() == [20]
    with pytest.raises(errors.QueryError, match="no model is called 'bog'; did you mean big"):
        store.ask("client_mistakes", model="bog")


MISTAKES = {
    "missing_argument": INVALID | {"input_schema_error": "lacks the member 'x'"},
    "invented_argument": INVALID
    | {"input_schema_error": "has members that the schema does not allow: 'x'"},
    "wrong_type": INVALID | {"input_schema_error": "is an object, not string"},
    "wrong_value": INVALID | {"input_schema_error": "is greater than 3"},
    "given_up": {"outcome": "cancelled"},
    "invented_tool": {"tool": "unheard", "outcome": "tool_error"},
}


def test_a_mistake_is_counted_by_its_kind(tmp_path: Path) -> None:
    calls = [call("right", client="right", **VALID)]
    for mistake, fields in MISTAKES.items():
        calls.append(call(mistake, client=mistake) | fields)
    store = build(tmp_path, calls, [definition("t")])
    rows = store.ask("client_mistakes").pl().to_dicts()
    made = [(row["client"], row["mistake"]) for row in rows if row["mistakes"]]
    assert sorted(made) == sorted((mistake, mistake) for mistake in MISTAKES)


def test_a_call_that_repeats_a_final_refusal_is_a_mistake_and_other_retries_are_not(
    tmp_path: Path,
) -> None:
    final, later = BUSINESS | {"retryable": "no"}, BUSINESS | {"retryable": "after_delay"}
    chain = [(0, final, "a"), (1, final, "a"), (2, OK, "b"), (3, later, "a"), (4, OK, "b")]
    calls = [
        call(client, client=client) | fields | {"attempt_of": f"{n:016x}", "attempt": 1}
        for n, fields, client in chain
    ]
    # The repetition of the first is refused as well, and not repeated.
    for first, result in ((0, final), (3, OK)):
        again = {"attempt_of": f"{first:016x}", "attempt": 2, "attempt_why": "retry"}
        calls.append(call("a", client="a") | result | again)
    calls.append(call("b", client="b") | final)
    row = answers(build(tmp_path, calls))["a", "repeated_refusal"]
    assert (row["mistakes"], row["calls"]) == (1, 3)


def categories(store: mt.Store) -> dict[str, dict[str, Any]]:
    rows = store.ask("fault_categories").pl().to_dicts()
    return {row["category"]: row for row in rows if row["ecosystem"] is None}


BROKEN = {"outcome": "tool_error", "verdict": "tool_failure", "reason": "internal_error"}
FAULTS = [
    ({"outcome": "hidden_error", "verdict": "business"}, "Tool"),
    ({"outcome": "ok", "input_schema_state": "invalid"}, "Tool"),
    (BROKEN, "Tool"),
    ({"outcome": "ok", "output_schema_state": "invalid"}, "Data & Schema"),
    (BROKEN | {"reason": "misconfig_or_missing_dependency"}, "State & Configuration"),
    (BROKEN | {"method": "initialize"}, "Session Lifecycle"),
    (BROKEN | {"method": "resources/read"}, "Resource"),
    (BROKEN | {"method": "prompts/get"}, "Prompt"),
    (BROKEN | {"method": "ping"}, "Base Protocol"),
    ({"verdict": "infrastructure", "reason": "connection_closed"}, "Transport Layer"),
    ({"outcome": "timeout", "verdict": "infrastructure"}, "Timeout & Cancellation"),
    (REFUSED, "outside: request refused"),
    ({"verdict": "infrastructure", "reason": "network"}, "outside: infrastructure"),
    ({"verdict": "ambiguous", "reason": "unclear"}, "outside: cause unknown"),
    ({"outcome": "cancelled"}, None),
    ({"outcome": "ok"}, None),
]


def test_a_failed_call_has_a_category(tmp_path: Path) -> None:
    calls = [
        call(n, server=f"s{n}", **({"outcome": "tool_error"} | fields))
        for n, (fields, _) in enumerate(FAULTS)
    ]
    found = build(tmp_path, calls).sql("SELECT server, category FROM _faults").pl().rows()
    assert dict(found) == {f"s{n}": category for n, (_, category) in enumerate(FAULTS)}


def test_a_share_counts_sessions_with_a_fault(tmp_path: Path) -> None:
    calls = [call("x", **BROKEN), call("x", **BROKEN), call("y"), call("z", server="other")]
    row = categories(build(tmp_path, calls))["Tool"]
    assert (row["sessions"], row["of_sessions"], row["calls"]) == (1, 3, 2)
    assert (row["servers"], row["of_servers"]) == (1, 2)
    assert row["session_share_low"] < row["session_share"] < row["session_share_high"]


def test_text_on_stdout_is_a_fault_of_the_transport(tmp_path: Path) -> None:
    noise = {"rule": "protocol.stdout_not_json", "server": "s", "session": "x", "message": "m"}
    found = categories(build(tmp_path, [call("x"), call("y")], findings=[noise]))
    assert (found["Transport Layer"]["sessions"], found["Transport Layer"]["calls"]) == (1, 0)


COMMANDS = {
    '["npx","-y","@scope/server"]': "node",
    '["/usr/bin/node","a.js"]': "node",
    '["uvx","mcp-server-git"]': "python",
    '["/opt/venv/bin/python3.12","-m","x"]': "python",
    '["docker","run","x"]': "container",
    '["mcp-server-node"]': "other program",
    "https://example.com/mcp": "remote",
}


def test_the_command_shows_the_ecosystem(tmp_path: Path) -> None:
    calls = [call("x", command=command, transport="stdio") for command in COMMANDS]
    rows = build(tmp_path, calls).sql("SELECT command, _ecosystem(command, transport) FROM calls")
    assert dict(rows.fetchall()) == COMMANDS


def test_the_shares_of_the_published_taxonomy_add_up(tmp_path: Path) -> None:
    found = categories(build(tmp_path, [call("x")]))
    assert sum(row["published_share"] or 0 for row in found.values()) == pytest.approx(1)
