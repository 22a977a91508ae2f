"""Hostile JSON Schemas cause no requests, take bounded time and memory, and are reported."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import polars as pl
import pytest

import mcptally as mt
from mcptally.analytics.dry_run import validate
from mcptally.jsonschemas import patterns
from mcptally.jsonschemas.cost import ErrorCost, collect_errors
from mcptally.jsonschemas.dialects import external_references, metaschema_errors
from mcptally.jsonschemas.validators import (
    _validator_with_patterns,
    compile_validator,
    validate_json,
)
from mcptally.seeds.inspector.ajv.schemas import compiled
from mcptally.seeds.javascript import Throws
from mcptally.seeds.validation_protocol import schema_errors
from tests.hostile.scored_archive import judged
from tests.record.http_rig import Connection, ScriptedServer
from tests.transcripts import call, exchange, opened, request, result, text, write

pytestmark = pytest.mark.slow


def nested(times: int, inner: Any, wrap: Any) -> Any:
    for _ in range(times):
        inner = wrap(inner)
    return inner


def ladder(rungs: int, keyword: str, bottom: Any) -> dict[str, Any]:
    """A schema in which each definition refers to the next one twice: 2**rungs paths."""
    steps = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(rungs)}
    return {"$defs": steps | {f"d{rungs}": bottom}, "$ref": "#/$defs/d0"}


NOWHERE = {"properties": {"x": {"$ref": "#/no"}}}
CHEST = {"properties": {"a": {}}, "unevaluatedProperties": False}
TREE = {
    "$defs": {
        "n": {
            "properties": {"l": {"$ref": "#/$defs/n"}, "r": {"$ref": "#/$defs/n"}},
            "anyOf": [{"required": ["l"]}, {"required": ["r"]}],
        }
    },
    "$ref": "#/$defs/n",
}

BOMBS: dict[str, tuple[Any, Any, str]] = {
    "a pattern of nested stars": ({"pattern": "^(a+)+$"}, "a" * 50_000 + "!", "invalid"),
    "a pattern for jsonschema": (NOWHERE | {"pattern": "^(a+)+$"}, "a" * 60 + "!", "invalid"),
    "a pattern beside $schema, for jsonschema": (
        NOWHERE | {"not": {"$schema": "http://json-schema.org/schema", "pattern": "^(a+)+$"}},
        "a" * 20 + "!", "unusable_schema"),
    "a pattern that looks behind itself": (
        {"pattern": r"^(a|a)*\1b$"}, "a" * 5000 + "!", "invalid"),
    "a pattern that looks ahead": ({"pattern": "^(?=(a+)+$)b"}, "a" * 5000 + "!", "invalid"),
    "a pattern of repeats of repeats": (
        {"pattern": "((a{1,1000}){1,1000}){1,1000}"}, "a", "valid"),
    "names that are patterns": (
        {"patternProperties": {"^(?!x)(a|aa)+$": {}}}, {"a" * 5000 + "!": 1}, "valid"),
    "a ladder of allOf": (ladder(60, "allOf", {}), 1, "unusable_schema"),
    "a ladder of anyOf": (ladder(60, "anyOf", {"type": "null"}), 1, "unusable_schema"),
    "a ladder of oneOf": (ladder(60, "oneOf", {}), 1, "unusable_schema"),
    "a reference to itself": ({"$ref": "#"}, 1, "unusable_schema"),
    "references in a circle": (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        1, "unusable_schema"),
    "a tree that never ends": (TREE, nested(300, {}, lambda v: {"l": v}), "invalid"),
    "a dynamic tree": (
        {
            "$dynamicAnchor": "n",
            "properties": {n: {"$dynamicRef": "#n"} for n in "abcdefgh"},
            "unevaluatedProperties": False,
        },
        nested(40, {"x": 1}, lambda v: {"a": v}), "invalid"),
    "chests in chests": (
        nested(40, CHEST, lambda s: {"allOf": [s], "unevaluatedProperties": False}),
        {"a": 1}, "unusable_schema"),
    "chests side by side": (
        nested(12, CHEST, lambda s: {"allOf": [s, s], "unevaluatedProperties": False}),
        {"a": 1}, "unusable_schema"),
    "chests of items": (
        nested(40, {"prefixItems": [{}]}, lambda s: {"allOf": [s], "unevaluatedItems": False}),
        [1], "unusable_schema"),
    "a schema of 2 MB": ({"description": "x" * (2 << 20)}, 1, "unusable_schema"),
    "a schema 200 deep": (nested(200, {}, lambda s: {"not": s}), 1, "unusable_schema"),
    "an enum of 100,000": ({"enum": list(range(100_000))}, -1, "invalid"),
    "items that all differ": ({"uniqueItems": True}, [{"a": n} for n in range(10_000)], "valid"),
    "distinct items for jsonschema": (NOWHERE | {"uniqueItems": True}, [], "unusable_schema"),
    "a length beyond all numbers": ({"minLength": 10**400}, "a", "invalid"),
    "a pattern that is none": ({"pattern": "("}, "a", "valid"),
    "a schema that is text": ("x", 1, "unusable_schema"),
    "a schema of another world": ({"$schema": "http://127.0.0.1/x"}, 1, "unusable_schema"),
}  # fmt: skip
"""Case → the schema, a value, and the expected result."""


@pytest.mark.parametrize(
    ("schema", "value", "state"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.slow] if "side by side" in name else [])
        for name, case in BOMBS.items()
    ],
)
def test_an_expensive_schema_is_validated_or_rejected_in_time(
    schema: Any, value: Any, state: str
) -> None:
    judge = compile_validator(json.dumps(schema))
    got = (
        "unusable_schema" if isinstance(judge, str) else validate_json(judge, json.dumps(value))[0]
    )
    assert got == state
    original = compiled(schema)
    if original is not None:
        with contextlib.suppress(Throws):  # as AJV would
            assert isinstance(original.first_error(value), str | None)


def rungs(spelt: str, named: str = "") -> dict[str, Any]:
    """Return a ladder's definitions: `spelt` refers to the next one, `named` declares a name."""
    told = {f"d{n}": {"allOf": [{"$ref": spelt.format(n + 1)}] * 2} for n in range(40)}
    told |= {"d40": {}}
    return {key: ({"$id": named.format(key[1:])} if named else {}) | v for key, v in told.items()}


HIDDEN: dict[str, Any] = {
    "where no keyword puts a schema": {"$ref": "#/x/d0", "x": rungs("#/x/d{}")},
    "in a default": {"$ref": "#/default/d0", "default": rungs("#/default/d{}")},
    "by a path with a dot": {
        "$id": "http://x/r", "$ref": "d/0", "$defs": rungs("./{}", "http://x/d/{}")},
    "by a path with two dots": {
        "$id": "http://x/r", "$ref": "0/s", "$defs": rungs("../{}/s", "http://x/{}/s")},
    "in capitals": {
        "$id": "http://x/r", "$ref": "0", "$defs": rungs("HTTP://X/{}", "http://x/{}")},
    "with a query of nothing": {
        "$id": "http://x/r", "$ref": "0?", "$defs": rungs("{}?", "http://x/{}")},
    "by a name from the root": {
        "$id": "http://x/r", "$ref": "q/0", "$defs": rungs("http://x/q/{}", "/q/{}")},
    "by a name within a schema of content": {
        "$ref": "0", "contentSchema": {"$defs": rungs("{}", "{}")}},
    "by escapes": {"$ref": "#/%24defs/d0", "$defs": rungs("#/%24defs/d{}")},
}  # fmt: skip
"""Ladders in different places of a schema, with references in different spellings."""


@pytest.mark.parametrize("schema", HIDDEN.values(), ids=HIDDEN)
def test_exponential_references_are_detected_in_any_place_and_spelling(schema: Any) -> None:
    text = json.dumps(schema)
    assert "subschemas" in str(compile_validator(text))
    assert compiled(schema) is None


def test_a_relative_reference_is_resolved_against_its_base() -> None:
    person = {"$id": "http://x/person/s", "properties": {"home": {"$ref": "../home/s"}}}
    home = {"$id": "http://x/home/s", "properties": {"owner": {"$ref": "../person/s"}}}
    schema = {"$ref": "#/$defs/p", "$defs": {"p": person, "h": home}}
    judge = compile_validator(json.dumps(schema))
    assert not isinstance(judge, str)
    assert judge({"home": {"owner": {"home": {}}}})[0] == "valid"
    assert external_references(schema) == []
    away = {"$id": "http://x/s", "properties": {"a": {"$ref": "http://y/s"}}}
    assert external_references(away) == [("/properties/a/$ref", "http://y/s")]


@pytest.mark.parametrize(
    "told", [{"$id": "http://x/s"}, {"$anchor": "a"}, {"$recursiveAnchor": True}], ids=str
)
def test_very_long_names_are_rejected_without_comparing_them(told: dict[str, Any]) -> None:
    key, to = ("$recursiveRef", "#") if "$recursiveAnchor" in told else ("$ref", "s")
    to = "#a" if "$anchor" in told else to
    many = {f"d{n}": told | {key: to} for n in range(8000)}
    assert "may lead to over" in str(compile_validator(json.dumps({key: to, "$defs": many})))


def test_jsonschema_checks_4_kib_of_invalid_parts_and_validates_with_32_kib() -> None:
    def padded(schema: dict[str, Any], length: int) -> dict[str, Any]:
        return schema | {"title": "x" * (length - len(msgspec.json.encode(schema | {"title": ""})))}

    faulty = {"$schema": "http://json-schema.org/draft-07/schema", "items": {"type": "int"}}
    for length, errors in ((1 << 12, 2), ((1 << 12) + 1, 1)):
        schema = padded(faulty | {"minLength": -1, "properties": {}}, length)
        found = metaschema_errors(schema | {"properties": {f"p{n}": {} for n in range(1000)}})
        assert (len(found), "first error only" in str(found)) == (errors, errors == 1)
        assert (("/items/type", "is not a JSON type") in found) == (errors == 2)
    for length, usable in ((1 << 15, True), ((1 << 15) + 1, False)):
        judge = compile_validator(msgspec.json.encode(padded({"$ref": "#/no"}, length)).decode())
        assert isinstance(judge, str) is not usable


def test_an_escaped_keyword_does_not_bypass_the_limit() -> None:
    text = json.dumps(ladder(60, "allOf", {})).replace("$ref", r"\u0024r\u0065f")
    assert "subschemas" in str(compile_validator(text))


@pytest.fixture
def bait() -> Iterator[ScriptedServer]:
    """A local server that counts connections."""
    with ScriptedServer(Connection.close) as server:
        yield server


def leading_out(url: str, file: str) -> list[dict[str, Any]]:
    """Return schemas that refer to the server or to a file with every keyword that can do so."""
    outside = [url + "/s.json", url + "/s.json#/a", file, "//" + url.removeprefix("http://")]
    schemas: list[dict[str, Any]] = [{"$schema": target} for target in outside]
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        schemas += [{keyword: target} for target in outside]
        schemas += [{"properties": {"a": {keyword: target}}} for target in outside]
        schemas += [{"$id": url + "/base/", keyword: "other.json"}]
    schemas += [
        {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": outside[0]},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "$ref": outside[0]},
        {"$schema": "http://json-schema.org/draft-04/schema#", "id": url, "$ref": "x"},
        {"$vocabulary": {url: True}, "$id": url + "/meta"},
        {"contentMediaType": "application/json", "contentSchema": {"$ref": outside[0]}},
        # The fast engine refuses `#/no`: the reference engine takes over.
        {"allOf": [{"$ref": outside[0]}], "properties": {"a": {"$ref": "#/no"}}},
        {"format": url},
    ]
    return schemas


def test_no_schema_makes_a_request_or_reads_a_file(tmp_path: Path, bait: ScriptedServer) -> None:
    url = f"http://127.0.0.1:{bait.port}"
    (tmp_path / "secret.json").write_text('{"const": "the secret"}')
    schemas = leading_out(url, (tmp_path / "secret.json").as_uri())
    tools = [
        {"name": f"t{n}", "inputSchema": schema, "outputSchema": schema, "icons": [{"src": url}]}
        for n, schema in enumerate(schemas)
    ]
    talk = [request(0, "tools/list"), result(0, tools=tools)]
    link = {"type": "resource_link", "name": "x", "uri": url + "/resource"}
    for n in range(len(schemas)):
        guess = {"a": "the guess"}
        talk += [
            call(n + 1, f"t{n}", **guess),
            result(n + 1, content=[link], structuredContent=guess),
        ]
    (tmp_path / "archive").mkdir()
    write(tmp_path / "archive" / "a.jsonl", [opened(), *exchange(*talk)])
    outcome = judged(tmp_path)
    assert bait.connections == 0
    store = mt.open_store(outcome.store)
    for n in range(len(schemas)):
        validate(store, server="demo", tool=f"t{n}", arguments={"a": "the guess"})
    assert bait.connections == 0
    findings = outcome.table("findings")
    # Every schema with an effect has a finding, and no call is invalid.
    rules = ["definition.schema_outside", "definition.dialect_unknown"]
    assert findings.filter(pl.col("rule").is_in(rules))["tool"].n_unique() >= len(schemas) - 6
    calls = outcome.table("calls").filter(pl.col("tool").str.starts_with("t"))
    assert "invalid" not in set(calls["input_schema_state"])
    texts = findings.select(pl.concat_str(pl.all().cast(pl.String), ignore_nulls=True))
    assert not texts.to_series().str.contains("the secret").any()


def test_a_value_deeper_than_the_engine_supports_does_not_stop_a_run(tmp_path: Path) -> None:
    deep = nested(300, {}, lambda v: [v])
    schemas = {"known": {"type": "object", "required": ["b"]}, "unknown": {"const": deep}}
    tools = [
        {"name": name, "inputSchema": {"type": "object"}, "outputSchema": {"properties": {"a": s}}}
        | ({"outputSchema": s} if name == "known" else {})
        for name, s in schemas.items()
    ]
    talk = [request(0, "tools/list"), result(0, tools=tools)]
    for number, name in enumerate(schemas, start=1):
        talk += [call(number, name), text(number, structuredContent={"a": deep})]
    (tmp_path / "archive").mkdir()
    write(tmp_path / "archive" / "a.jsonl", [opened(), *exchange(*talk)])
    outcome = judged(tmp_path)
    calls = outcome.table("calls").filter(pl.col("tool").is_in(list(schemas)))
    states = dict(calls.select("tool", "output_schema_state").iter_rows())
    assert states == {"known": "invalid", "unknown": "unusable_schema"}
    scores = outcome.table("seed_scores")
    classes = dict(scores.select("tool", "inspector_classification").iter_rows())
    assert classes["known"] == "partially_working"


def branches(count: int) -> dict[str, Any]:
    return {"items": {"anyOf": [{"const": n} for n in range(count)]}}


def all_errors(schema: Any, value: Any) -> list[Any]:
    validator = jsonschema_rs.Draft202012Validator(schema)
    return collect_errors(validator, ErrorCost(schema), value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (branches(2000), [-1] * 2000),
        ({"items": {"enum": [{"a": n} for n in range(4000)]}}, [{"a": -1}] * 4000),
        ({"required": [f"r{n}" for n in range(8000)]}, {f"k{n}": 1 for n in range(8000)}),
        ({"allOf": [{"contains": {"const": n}} for n in range(4000)]}, [-1] * 4000),
        (ladder(10, "anyOf", {"type": "null"}), [1] * 100),
    ],
    ids=["branches by items", "options by items", "members", "contains", "a ladder"],
)
def test_validation_stops_before_collecting_very_many_errors(schema: Any, value: Any) -> None:
    """Collecting all errors would take minutes for each of these."""
    errors = all_errors(schema, value)
    assert len(errors) <= 1
    judge = compile_validator(json.dumps(schema))
    assert not isinstance(judge, str)
    state, words, path = validate_json(judge, json.dumps(value))
    assert (state, bool(words), path is None) == ("invalid", True, False)
    assert len(list(schema_errors.schema_remarks(json.dumps(schema), value))) <= 1
    original = compiled(schema)
    assert original is not None
    assert original.first_error(value)


def test_one_error_is_reported_for_a_value_of_more_than_a_megabyte() -> None:
    schema = {"items": {"type": "integer"}}
    validator = jsonschema_rs.Draft202012Validator(schema)
    value = ["x" * 8_189] * 127  # in JSON, 8 KiB each with quotes and comma
    for ours_or_theirs in (None, ErrorCost(schema)):
        assert len(collect_errors(validator, ours_or_theirs, [*value, "x" * 8_188])) == 128
        assert len(collect_errors(validator, ours_or_theirs, [*value, "x" * 8_189])) == 1


def test_all_errors_of_ordinary_schemas_are_collected() -> None:
    """This holds for large values, and for small values with many errors."""
    flat = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(300)}}
    value = {f"p{n}": n for n in range(300)}
    assert len(all_errors(flat, value)) == 300
    rows = {"items": {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}}}
    many = [{"a": n} for n in range(3000)]
    assert len(all_errors(rows, many)) == 3000
    zones = {"properties": {"zone": branches(100)["items"]}, "required": ["zone", "when"]}
    errors = all_errors(zones, {"zone": "Mars"})
    assert sorted(error.kind.name for error in errors) == ["anyOf", "required"]


LARGE = "(((a{1,50}){1,50}){1,50}){1,50}"
"""A pattern of 32 characters that takes 26 MB when `jsonschema_rs` 0.61 compiles it."""


def test_memory_of_compiled_patterns_is_limited() -> None:
    assert patterns.compile_pattern(LARGE) is None
    schema = {
        "properties": {f"p{n}": {"pattern": f"(a{{1,{n + 50}}}){{1,50}}"} for n in range(500)}
    }
    with pytest.raises((ValueError, jsonschema_rs.ValidationError)):
        jsonschema_rs.Draft202012Validator(schema, pattern_options=patterns.pattern_options(schema))
    judge = compile_validator(json.dumps(schema))
    assert isinstance(judge, str) or validate_json(judge, '{"p1":"aa"}')[0] == "valid"


def test_ordinary_patterns_are_accepted() -> None:
    texts = [
        r"^[\w.-]{1,64}$",
        r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}",
        r"^(?!\s)[^/\0]{1,255}$",
        r"\p{L}+",
    ]
    schema = {"properties": {f"p{n}": {"pattern": text} for n, text in enumerate(texts * 20)}}
    judge = compile_validator(json.dumps(schema))
    assert not isinstance(judge, str)
    assert validate_json(judge, '{"p1":"2026-01-01"}')[0] == "invalid"
    assert validate_json(judge, '{"p0":"a.b-c","p2":"a b"}')[0] == "valid"


def test_the_cache_of_schemas_with_patterns_is_small() -> None:
    for n in range(patterns.MAX_CACHED_SCHEMAS * 2):
        compile_validator(json.dumps({"pattern": f"^a{{{n}}}$"}))
    assert _validator_with_patterns.cache_info().currsize == patterns.MAX_CACHED_SCHEMAS
