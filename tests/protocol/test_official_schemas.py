"""The official schemas accept and reject the same payloads."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import polars as pl
import pytest

from mcptally.pipeline.partition import gather
from mcptally.protocol.message_schemas import document, validator
from mcptally.protocol.revisions import STATELESS
from tests.jsonschemas.oracle import members
from tests.protocol import generate_message_schemas
from tests.protocol.conversation import META, Conversation
from tests.protocol.schema_instances import Instances, broken

pytestmark = pytest.mark.slow

[MODERN] = STATELESS

DISAGREEMENTS = [
    (r"^/(id|jsonrpc)\b", "protocol.jsonrpc_version, null_id and id_type check these"),
    (r"^/isError\b", "protocol.is_error_not_boolean checks it"),
    (r"^/resultType\b", "protocol.result_type_missing and result_type_unknown check it"),
    (r"^/tools/0/(?!name)", "definition.shape checks each definition once"),
    (r"^/params( gone|=)", "2026-07-28: only _meta is required, protocol.meta_missing checks it"),
    (r"^/params/_meta( gone|=)", "protocol.meta_missing checks it"),
    (
        r"^/params/_meta/io\.modelcontextprotocol/(clientCapabilities|protocolVersion) gone",
        "protocol.meta_missing checks it",
    ),
    (
        r"^/params/requestedSchema/properties=",
        "mcp_types accepts any field in a form: SDKs send more than the schema has",
    ),
]
"""Where our schemas accept what the official ones reject, and why. They never reject more."""


OFFICIAL = {
    Path(name).stem: schema["$defs"]
    for name, schema in members("mcp-2.3.0", "mcp-2.3.0/schema/2").items()
}
"""Era → `$defs` of the official schema."""


@pytest.mark.parametrize("era", generate_message_schemas.ERAS)
def test_our_schemas_and_the_official_ones_accept_the_same_payloads(era: str):
    definitions = OFFICIAL[era]
    values = Instances(definitions)
    unexplained, compared, used = [], 0, set()
    for kind in ("requests", "notifications", "results", "definitions"):
        for method, name in document()[era][kind].items():
            theirs = name.rsplit("__", 1)[-1]
            schema = {"$ref": f"#/$defs/{theirs}", "$defs": definitions}
            their_validator = jsonschema_rs.Draft202012Validator(schema)
            our_validator = validator(kind, method, era)
            seen = set()
            for full in (False, True):
                for base in values.some(definitions[theirs], full=full):
                    for what, value in [("as it is", base), *broken(base)]:
                        text = json.dumps(value, sort_keys=True)
                        if text in seen:
                            continue
                        seen.add(text)
                        compared += 1
                        theirs_rejects = not their_validator.is_valid(value)
                        ours_rejects = our_validator(value)[0] == "invalid"
                        if theirs_rejects == ours_rejects:
                            continue
                        why = [p for p, _ in DISAGREEMENTS if theirs_rejects and re.search(p, what)]
                        used.update(why)
                        if not why:
                            unexplained.append((kind, method, what, theirs_rejects))
    assert not unexplained
    assert compared > 20_000
    assert used, "the schemas no longer disagree: DISAGREEMENTS can go"


def _talk(revision: str, definitions: dict[str, Any]) -> tuple[Conversation, dict[int, str]]:
    """Return a conversation with broken calls and results, and the expected rule per id."""
    talk = Conversation("mutants", server="s")
    modern = revision == MODERN
    talk.event("open", transport="stdio", server="s", command=["x"], segment=0)
    if not modern:
        talk.handshake(revision)
    values = Instances(definitions)
    meta = {"_meta": META} if modern else {}
    expected: dict[int, str] = {}
    number = 5000
    for full in (False, True):
        for base in values.some(definitions["CallToolRequestParams"], full=full):
            for _, params in broken(base | meta):
                number += 1
                request = {"method": "tools/call", "params": params}
                sent = params.get("_meta")
                if modern and not (isinstance(sent, dict) and sent.get(_VERSION) == MODERN):
                    continue  # the request has another revision, or none
                talk.message(">", json.dumps({"jsonrpc": "2.0", "id": number, **request}))
                expected[number] = _expected("requests", revision, request)
        for base in values.some(definitions["CallToolResult"], full=full):
            for _, result in broken(base | ({"resultType": "complete"} if modern else {})):
                number += 1
                request = {"method": "tools/call", "params": {"name": "a", **meta}}
                if result.get("resultType") != "complete" and modern:
                    continue
                talk.message(">", json.dumps({"jsonrpc": "2.0", "id": number, **request}))
                talk.message("<", json.dumps({"jsonrpc": "2.0", "id": number, "result": result}))
                expected[number] = _expected("results", revision, result)
    return talk, expected


_VERSION = "io.modelcontextprotocol/protocolVersion"


def _expected(kind: str, revision: str, value: Any) -> str:
    """The rule that a payload breaks; empty if it is valid."""
    if validator(kind, "tools/call", revision)(value)[0] == "valid":
        return ""
    lenient = validator(kind, "tools/call", revision, nulls=True)
    if lenient is not None and lenient(value)[0] == "valid":
        return "protocol.null_member"
    return {"requests": "protocol.request_shape", "results": "protocol.result_shape"}[kind]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", MODERN])
def test_columns_and_schema_find_the_same_broken_payloads(tmp_path: Path, revision: str):
    talk, expected = _talk(revision, OFFICIAL[MODERN if revision == MODERN else "2025-11-25"])
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(talk.lines))
    part = gather([path], ["a"])
    rules = ["protocol.request_shape", "protocol.result_shape", "protocol.null_member"]
    found = part.findings.filter(pl.col("rule").is_in(rules)).join(
        part.calls.select("call_id", "id"), on="call_id"
    )
    actual = {int(i): rule for i, rule in found.select("id", "rule").iter_rows()}
    wrong = {
        number: (rule, actual.get(number, ""))
        for number, rule in expected.items()
        if actual.get(number, "") != rule
    }
    assert len(expected) > 300
    assert not wrong
