"""Calls whose outcome a log does not state are not counted in any rate."""

import json

import pytest

import mcptally as mt
from tests.commands import run

pytestmark = pytest.mark.slow

OK, ERROR = {}, {"code": 2, "message": "internal_error"}


def span(number, name, *, kind, library, status=OK, **attributes):
    """Return a document with one span for a call."""
    values = [
        {"key": key.replace("__", "."), "value": {"stringValue": value}}
        for key, value in attributes.items()
    ]
    body = {
        "traceId": "1" * 32,
        "spanId": f"{number:016x}",
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(1_795_861_703_000_000_000 + number * 1_000_000_000),
        "endTimeUnixNano": str(1_795_861_703_200_000_000 + number * 1_000_000_000),
        "attributes": [{"key": "mcp.method.name", "value": {"stringValue": "tools/call"}}, *values],
        "status": status,
    }
    scope = {"scope": {"name": library}, "spans": [body]}
    return json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [scope]}]})


def outcomes(store):
    found = mt.open_store(store).sql("SELECT tool, outcome FROM calls ORDER BY requested_at")
    return found.fetchall()


def test_a_clients_span_of_the_python_sdk_does_not_tell_the_outcome(tmp_path):
    client = {"kind": 3, "library": "mcp-python-sdk"}
    lines = [
        span(1, "MCP send tools/call price", **client),
        span(2, "tools/call order", **client, status=ERROR, error__type="-32602"),
        span(3, "tools/call price", kind=2, library="mcp-python-sdk"),
        span(4, "tools/call price", kind=3, library="other"),
    ]
    log = tmp_path / "spans.jsonl"
    log.write_text("\n".join(lines))
    mt.import_logs(log, tmp_path / "traces")
    mt.score([tmp_path / "traces"], out=tmp_path / "store")
    expected = [("price", "unknown"), ("order", "protocol_error"), ("price", "ok"), ("price", "ok")]
    assert outcomes(tmp_path / "store") == expected
    scores = mt.open_store(tmp_path / "store").sql(
        "SELECT calls, ok, unknown, answered, success_rate FROM tool_scores WHERE tool = 'price'"
    )
    assert scores.fetchall() == [(3, 2, 1, 3, 1.0)]

    assert run("export", tmp_path / "store", "--to", "otlp", "-o", tmp_path / "out.json")
    mt.import_logs(tmp_path / "out.json", tmp_path / "again")
    mt.score([tmp_path / "again"], out=tmp_path / "second")
    assert outcomes(tmp_path / "second") == expected


def test_the_screen_says_how_many_outcomes_are_unknown(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    log = tmp_path / "spans.jsonl"
    log.write_text(span(1, "tools/call price", kind=3, library="mcp-python-sdk"))
    screen = run(log).stdout.splitlines()
    assert "The outcome of no call is known" in screen
    assert "outcome unknown: 1" in screen
