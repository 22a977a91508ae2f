"""Changes between two versions of a tool definition, and their effect on callers."""

import json
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import mcptally
from mcptally.jsonschemas.definition_diff import diff_definitions, worst_class
from tests.protocol.conversation import Conversation

BASE: dict[str, Any] = {
    "name": "add",
    "description": "Adds.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "number", "minimum": 0, "enum": [1, 2]}, "b": {}},
        "required": ["a"],
    },
    "outputSchema": {
        "type": "object",
        "properties": {"sum": {"type": "number"}},
        "required": ["sum"],
    },
}


def changed(*path: str | int, to: Any) -> dict[str, Any]:
    tool = json.loads(json.dumps(BASE))
    place = tool
    for part in path[:-1]:
        place = place[part]
    if to is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return tool


CASES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES, ids=[f"{c['changes']} {c['drift']}" for c in CASES])
def test_a_change_is_classified_by_its_effect_on_callers(case: dict[str, Any]):
    new = changed(*case["at"].split("/"), to=case.get("to", ...))
    changes = diff_definitions(json.dumps(BASE), json.dumps(new))
    assert [change for change, _ in changes] == case["changes"]
    assert worst_class(changes) == case["drift"]


def test_a_boolean_required_of_draft_3_requires_nothing():
    old, new = (
        changed(
            "inputSchema",
            "properties",
            "b",
            to={"required": True, "properties": {key: {} for key in has}},
        )
        for has in ("x", "xy")
    )
    changes = diff_definitions(json.dumps(old), json.dumps(new))
    assert changes == [("inputSchema/properties/b/properties/y: added", "compatible")]


ODD = {
    "a boolean required, as in draft 3": {"properties": {"b": {"required": True}}},
    "required without names": {"properties": {}, "required": [["a"], {}, 5]},
    "required that is a number": {"properties": {}, "required": 5},
    "a type that is a number": {"type": 5},
    "types that are not names": {"type": [5, ["a"], None]},
    "a schema that is a number": 5,
    "keywords of the wrong type": {"properties": {"a": 5}, "items": 5, "enum": 5, "$defs": 5},
}


@pytest.mark.slow
@pytest.mark.parametrize("schema", ODD.values(), ids=ODD)
def test_invalid_schemas_do_not_stop_a_run(tmp_path: Path, schema: Any):
    plain = {"type": "object", "properties": {"b": {"properties": {"y": {}}}}, "required": ["b"]}
    listings = [{"name": "x", "inputSchema": each} for each in (schema, plain, schema)]
    lines = ["@2025-06-18", *(f"tools {json.dumps([tool])}" for tool in listings)]
    conversation(tmp_path / "a.jsonl", "s", lines)
    mcptally.score([tmp_path / "a.jsonl"], out=tmp_path / "store")
    tools = pl.read_parquet(tmp_path / "store" / "tools" / "*.parquet")
    assert tools.height == 2


def test_the_class_of_several_changes_is_the_worst():
    new = changed("description", to="x")
    new["inputSchema"]["required"] = ["a", "b"]
    assert worst_class(diff_definitions(json.dumps(BASE), json.dumps(new))) == "breaking"


def test_reordered_members_are_not_a_change():
    assert diff_definitions(json.dumps(BASE), json.dumps(dict(reversed(BASE.items())))) == []


def conversation(path: Path, server: str, lines: list[str]) -> None:
    talk = Conversation(path.stem, server=server)
    talk.event("open", transport="stdio", server=server, command=["x"], segment=0)
    for line in lines:
        talk.line(line)
    path.write_bytes(b"".join(talk.lines))


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    """The tables of an archive in which three servers change their tools."""
    folder = tmp_path_factory.mktemp("definitions")
    archive = folder / "archive"
    archive.mkdir()
    versions = (BASE, changed("inputSchema", "required", to=["a", "b"]), BASE)
    listings = [f"tools {json.dumps([tool])}" for tool in versions]
    conversation(archive / "changed.jsonl", "changed", ["@2025-06-18", *listings])
    note = '< {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    other = f"tools {json.dumps([changed('description', to='x')])}"
    lines = ["@2025-06-18", listings[0], note, other]
    conversation(archive / "announced.jsonl", "announced", lines)
    number, text = ([changed("inputSchema", to={"type": kind})] for kind in ("object", "string"))
    call, reply = 'call add {"a": 1}', '{"content":[]}'
    lines = ["@2025-06-18"]
    for listing in ([], number, text):
        lines += [f"tools {json.dumps(listing)}"] * bool(listing) + [f"{call} {reply}"] * 2
    conversation(archive / "a.jsonl", "validated", lines)
    later = ["+ 60000", "@2025-06-18", f"{call} {reply}"]
    conversation(archive / "b.jsonl", "validated", later)
    mcptally.score(archive, out=folder / "store")
    tables = ("tools", "findings", "calls")
    return {name: pl.read_parquet(folder / "store" / name / "*.parquet") for name in tables}


def changes_in_session(scored: dict[str, pl.DataFrame], recording: str) -> list[str]:
    rows = scored["findings"].filter(rule="definition.changed_in_session", recording=recording)
    return rows.get_column("message").to_list()


@pytest.mark.slow
def test_the_tools_table_describes_the_change_from_the_previous_version(
    scored: dict[str, pl.DataFrame],
):
    tools = scored["tools"].filter(server="changed").sort("first_seen")
    old, new = tools.iter_rows(named=True)
    assert (old["previous"], old["drift"], old["changed"]) == (None, None, None)
    assert (new["previous"], new["drift"]) == (old["definition"], "breaking")
    assert new["changed"] == ["inputSchema/required/b: added"]
    assert (new["input_dialect"], new["output_dialect"]) == ("2020-12", "2020-12")
    assert changes_in_session(scored, "changed") == [
        "the tool changed within a session (not announced): inputSchema/required/b: added",
        "the tool changed within a session (not announced): inputSchema/required/b: removed",
    ]


@pytest.mark.slow
def test_the_finding_states_that_a_change_was_announced(scored: dict[str, pl.DataFrame]):
    assert changes_in_session(scored, "announced") == [
        "the tool changed within a session (announced): description: changed"
    ]


def test_a_call_is_validated_by_the_version_listed_last_before_it(scored: dict[str, pl.DataFrame]):
    calls = scored["calls"].filter(method="tools/call", server="validated")
    assert calls.sort("recording", "seq").select(
        "definition_source", "input_schema_state"
    ).rows() == [
        *[("later", "valid")] * 2,
        *[("session", "valid")] * 2,
        *[("session", "invalid")] * 2,
        ("server", "invalid"),
    ]
