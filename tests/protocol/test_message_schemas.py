"""Payloads are validated as the official schemas of each revision do."""

from typing import Any

import polars as pl
import pytest

from mcptally.jsonschemas.validators import validate_json
from mcptally.messages.decode import decode
from mcptally.messages.integrity import deduplicate
from mcptally.messages.pair import pair
from mcptally.messages.sessions import assign_sessions
from mcptally.protocol import revisions
from mcptally.protocol.message_schemas import _results, validator
from mcptally.protocol.revisions import STATELESS
from mcptally.protocol.traffic import Traffic
from mcptally.rules.findings import REVISIONS
from tests import corpus
from tests.protocol import generate_message_schemas


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
    [{"type": "tool_use", "id": "1", "name": "a", "input": {}}, [{"type": "text", "text": "x"}]],
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
        if not (revision in STATELESS and '"resultType"' not in text)
    }
    assert settled.height > 1000
    assert states == {"valid"}
