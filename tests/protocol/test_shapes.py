"""Payloads against the shapes of each revision; the official schemas are the oracle."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import polars as pl
import pytest

from mcptally.jsonschemas.validators import judge_value
from mcptally.messages.decode import decode
from mcptally.messages.integrity import deduplicate
from mcptally.messages.pair import pair
from mcptally.messages.sessions import assign_sessions
from mcptally.pipeline.partition import gather
from mcptally.protocol import generate, revisions
from mcptally.protocol.message_schemas import _results, document, judge
from mcptally.protocol.revisions import MODERN
from mcptally.protocol.view import Traffic
from mcptally.rules.findings import REVISIONS
from tests import corpus
from tests.jsonschemas.oracle import members
from tests.protocol.conversation import META, Conversation
from tests.protocol.instances import Instances, broken

DISAGREEMENTS = [
    (r"^/(id|jsonrpc)\b", "protocol.jsonrpc_version, null_id and id_type look at these"),
    (r"^/isError\b", "protocol.is_error_not_boolean looks at it"),
    (r"^/resultType\b", "protocol.result_type_missing and result_type_unknown look at it"),
    (r"^/tools/0/(?!name)", "each definition is judged once, by definition.shape"),
    (r"^/params( gone|=)", "2026-07-28: nothing but _meta is in them, protocol.meta_missing"),
    (r"^/params/_meta( gone|=)", "protocol.meta_missing looks at it"),
    (
        r"^/params/_meta/io\.modelcontextprotocol/(clientCapabilities|protocolVersion) gone",
        "protocol.meta_missing looks at it",
    ),
    (
        r"^/params/requestedSchema/properties=",
        "mcp_types leaves open what a form's field may be: SDKs send more than the schema has",
    ),
]
"""Where ours accepts what the official schema refuses, and why. It never refuses more."""


@pytest.fixture(scope="module")
def official() -> dict[str, dict[str, Any]]:
    """Era → `$defs` of the official schema."""
    files = members("mcp-2.3.0", "mcp-2.3.0/schema/2")
    return {Path(name).stem: schema["$defs"] for name, schema in files.items()}


@pytest.mark.parametrize("era", generate.ERAS)
def test_our_shapes_and_the_official_ones_say_the_same(official, era: str):
    definitions = official[era]
    values = Instances(definitions)
    unexplained, compared, used = [], 0, set()
    for kind in ("requests", "notifications", "results", "definitions"):
        for method, name in document()[era][kind].items():
            theirs = name.rsplit("__", 1)[-1]
            schema = {"$ref": f"#/$defs/{theirs}", "$defs": definitions}
            judge_theirs = jsonschema_rs.Draft202012Validator(schema)
            judge_ours = judge(kind, method, era)
            seen = set()
            for full in (False, True):
                for base in values.some(definitions[theirs], full=full):
                    for what, value in [("as it is", base), *broken(base)]:
                        text = json.dumps(value, sort_keys=True)
                        if text in seen:
                            continue
                        seen.add(text)
                        compared += 1
                        refuses = not judge_theirs.is_valid(value)
                        ours = judge_ours(value)[0] == "invalid"
                        if refuses == ours:
                            continue
                        why = [p for p, _ in DISAGREEMENTS if refuses and re.search(p, what)]
                        used.update(why)
                        if not why:
                            unexplained.append((kind, method, what, refuses))
    assert not unexplained
    assert compared > 20_000
    assert used, "none of the disagreements is one"


def test_the_shapes_in_the_package_are_those_of_the_installed_mcp():
    kept = generate.TARGET.read_text(encoding="utf-8")
    assert kept == generate.text(), "python -m mcptally.protocol.generate writes them anew"


BLOCKS = {
    "text": ({"type": "text", "text": "x"}, "2024-11-05"),
    "image": ({"type": "image", "data": "", "mimeType": "image/png"}, "2024-11-05"),
    "resource": ({"type": "resource", "resource": {"uri": "a:b", "text": ""}}, "2024-11-05"),
    "audio": ({"type": "audio", "data": "", "mimeType": "audio/wav"}, "2025-03-26"),
    "resource_link": ({"type": "resource_link", "uri": "a:b", "name": "b"}, "2025-06-18"),
}


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_content_block_is_one_from_the_revision_that_brought_it(kind: str, revision: str):
    block, since = BLOCKS[kind]
    state, words, path = judge("results", "tools/call", revision)({"content": [block]})
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
    states = {r: judge("results", "sampling/createMessage", r) for r in REVISIONS[:4]}
    assert [states[r](result)[0] for r in REVISIONS[:4]] == ["invalid"] * 3 + ["valid"]


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
def test_words_and_place_of_what_is_wrong(
    kind: str, method: str, value: Any, words: str, path: str
):
    whole = value | ({"method": method} if kind == "requests" else {})
    assert judge(kind, method, "2025-06-18")(whole) == ("invalid", words, path)


def _talk(revision: str, definitions: dict[str, Any]) -> tuple[Conversation, dict[int, str]]:
    """Every broken tools/call and result, in one conversation; id → what is expected."""
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
                said = params.get("_meta")
                if modern and not (isinstance(said, dict) and said.get(_VERSION) == MODERN):
                    continue  # another revision, or none, is in force
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
    if judge(kind, "tools/call", revision)(value)[0] == "valid":
        return ""
    nulls = judge(kind, "tools/call", revision, nulls=True)
    if nulls is not None and nulls(value)[0] == "valid":
        return "protocol.null_member"
    return {"requests": "protocol.request_shape", "results": "protocol.result_shape"}[kind]


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", MODERN])
def test_what_columns_settle_the_schema_would_have_accepted(
    official, tmp_path: Path, revision: str
):
    talk, expected = _talk(revision, official[MODERN if revision == MODERN else "2025-11-25"])
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(talk.lines))
    part = gather([path], ["a"])
    rules = ["protocol.request_shape", "protocol.result_shape", "protocol.null_member"]
    found = part.findings.filter(pl.col("rule").is_in(rules)).join(
        part.calls.select("call_id", "id"), on="call_id"
    )
    said = {int(i): rule for i, rule in found.select("id", "rule").iter_rows()}
    wrong = {
        number: (rule, said.get(number, ""))
        for number, rule in expected.items()
        if said.get(number, "") != rule
    }
    assert len(expected) > 300
    assert not wrong


def test_on_recorded_traffic_columns_settle_nothing_that_the_schema_refuses():
    files = corpus.recordings()[:12]
    names = [file.name for file in files]
    events = deduplicate(decode(files, names), names, files)
    paired = pair(events, assign_sessions(events))
    calls = paired.calls.with_columns(file=pl.lit("a"))
    both = Traffic.of(events, paired.messages.with_columns(file=pl.lit("a")), calls, names)
    judged = _results(both).get_column("call_id")
    settled = both.calls.filter(
        ~pl.col("call_id").is_in(judged.implode()),
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
        judge_value(judge("results", method, revision), text)[0]
        for method, revision, text in settled.select("method", "revision", "response").iter_rows()
        if not (revision == MODERN and '"resultType"' not in text)
    }
    assert settled.height > (1000 if corpus.traffic() else 100)
    assert states == {"valid"}
