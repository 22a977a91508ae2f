"""Payloads are validated as the official schemas of each revision do."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import polars as pl
import pytest

from mcptally.jsonschemas.validators import validate_json
from mcptally.messages.decode import decode
from mcptally.messages.integrity import deduplicate
from mcptally.messages.pair import pair
from mcptally.messages.sessions import assign_sessions
from mcptally.pipeline.partition import gather
from mcptally.protocol import revisions
from mcptally.protocol.message_schemas import _results, document, validator
from mcptally.protocol.revisions import MODERN
from mcptally.protocol.traffic import Traffic
from mcptally.rules.findings import REVISIONS
from tests import corpus
from tests.jsonschemas.oracle import members
from tests.protocol import generate_message_schemas
from tests.protocol.conversation import META, Conversation
from tests.protocol.schema_instances import Instances, broken

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


@pytest.fixture(scope="module")
def official() -> dict[str, dict[str, Any]]:
    """Era → `$defs` of the official schema."""
    files = members("mcp-2.3.0", "mcp-2.3.0/schema/2")
    return {Path(name).stem: schema["$defs"] for name, schema in files.items()}


@pytest.mark.slow
@pytest.mark.parametrize("era", generate_message_schemas.ERAS)
def test_our_schemas_and_the_official_ones_accept_the_same_payloads(official, era: str):
    definitions = official[era]
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


def test_the_schemas_in_the_package_are_those_of_the_installed_mcp():
    kept = generate_message_schemas.TARGET.read_text(encoding="utf-8")
    assert kept == generate_message_schemas.text(), (
        "run python -m tests.protocol.generate_message_schemas to write the file again"
    )


BLOCKS = {
    "text": ({"type": "text", "text": "x"}, "2024-11-05"),
    "image": ({"type": "image", "data": "", "mimeType": "image/png"}, "2024-11-05"),
    "resource": ({"type": "resource", "resource": {"uri": "a:b", "text": ""}}, "2024-11-05"),
    "audio": ({"type": "audio", "data": "", "mimeType": "audio/wav"}, "2025-03-26"),
    "resource_link": ({"type": "resource_link", "uri": "a:b", "name": "b"}, "2025-06-18"),
}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_content_block_is_valid_since_the_revision_that_added_it(kind: str, revision: str):
    block, since = BLOCKS[kind]
    state, words, path = validator("results", "tools/call", revision)({"content": [block]})
    assert (state == "valid") == (revision >= since)
    if state == "invalid":
        assert (words, path) == ("is none of the allowed values", "/content/0/type")


@pytest.mark.parametrize(
    "content",
    [
        {"type": "tool_use", "id": "1", "name": "a", "input": {}},
        [{"type": "text", "text": "x"}],
    ],
)
def test_sampling_has_tools_and_lists_of_blocks_since_2025_11_25(content: Any):
    result = {"role": "assistant", "model": "m", "content": content}
    validators = [validator("results", "sampling/createMessage", r) for r in REVISIONS[:4]]
    assert [validate(result)[0] for validate in validators] == ["invalid"] * 3 + ["valid"]


@pytest.mark.parametrize(
    ("kind", "method", "value", "words", "path"),
    [
        ("requests", "tools/call", {"params": {}}, "lacks the member 'name'", "/params"),
        ("requests", "tools/call", {}, "lacks the member 'params'", ""),
        (
            "results",
            "tools/call",
            {"content": [{"type": "text"}]},
            "lacks the member 'text'",
            "/content/0",
        ),
        ("results", "tools/call", {"content": {}}, "is an object, not array", "/content"),
        ("results", "prompts/list", {}, "lacks the member 'prompts'", ""),
    ],
)
def test_an_invalid_payload_has_a_message_and_a_path(
    kind: str, method: str, value: Any, words: str, path: str
):
    whole = value | ({"method": method} if kind == "requests" else {})
    assert validator(kind, method, "2025-06-18")(whole) == ("invalid", words, path)


def _talk(revision: str, definitions: dict[str, Any]) -> tuple[Conversation, dict[int, str]]:
    """Broken calls and results of tools in one conversation, and per id the expected rule."""
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


@pytest.mark.slow
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", MODERN])
def test_columns_and_schema_find_the_same_broken_payloads(official, tmp_path: Path, revision: str):
    talk, expected = _talk(revision, official[MODERN if revision == MODERN else "2025-11-25"])
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


@pytest.mark.slow
def test_on_recorded_traffic_the_schema_accepts_every_result_that_columns_accept():
    files = corpus.recordings()
    names = [file.name for file in files]
    events = deduplicate(decode(files, names), names, files)
    paired = pair(events, assign_sessions(events))
    calls = paired.calls.with_columns(file=pl.lit("a"))
    traffic = Traffic.of(events, paired.messages.with_columns(file=pl.lit("a")), calls, names)
    validated = _results(traffic).collect().get_column("call_id")
    settled = traffic.calls.filter(
        ~pl.col("call_id").is_in(validated.implode()),
        ~pl.col("error_reply"),
        "has_response",
        pl.col("revision").is_in(REVISIONS),
        pl.col("method").is_in(sorted(revisions.names("request"))),
        pl.col("outcome") != "input_required",
    )
    texts = events.replies.select("response", reply_row="row")
    settled = settled.join(texts, on="reply_row", how="left").unique(
        ["revision", "method", "response"]
    )
    states = {
        validate_json(validator("results", method, revision), text)[0]
        for method, revision, text in settled.select("method", "revision", "response").iter_rows()
        if not (revision == MODERN and '"resultType"' not in text)
    }
    assert settled.height > 1000
    assert states == {"valid"}
