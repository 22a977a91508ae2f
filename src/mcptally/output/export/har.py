"""HAR 1.2: a call an entry, as one POST with a JSON body, whatever carried it.

Calls over stdio have the URL `stdio://SERVER`. What the server asks of the client has no place in
a HAR, and neither has a call without a time. `_mcptally` holds what HAR has no name for.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final
from urllib.parse import quote

import pyarrow as pa

import mcptally
from mcptally.output.export.jsonrpc import reply, request
from mcptally.output.export.values import dumps, plain

_KEPT: Final = (
    *("call_id", "recording", "session", "server", "tool", "outcome", "verdict", "reason"),
    *("fault", "retryable", "confidence", "error_code", "error_text"),
)


def write(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,  # noqa: ARG001  (an entry has its own)
    file: BinaryIO,
) -> Mapping[str, int]:
    """One document with an entry a call."""
    left_out = {"asked by the server": 0, "without a time": 0}
    creator = {"name": "mcptally", "version": mcptally.__version__}
    head = dumps({"version": "1.2", "creator": creator})
    file.write(b'{"log":' + head[:-1] + b',"entries":[\n')
    first = True
    for batch in batches:
        for row in batch.to_pylist():
            if row["dir"] == "s2c":
                left_out["asked by the server"] += 1
                continue
            if row["requested_at"] is None:
                left_out["without a time"] += 1
                continue
            file.write((b"" if first else b",\n") + dumps(_entry(row)))
            first = False
    file.write(b"\n]}}\n")
    return left_out


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    asked, said = request(row).decode(), reply(row)
    text = "" if said is None else said.decode()
    latency = row["latency_ms"]
    content: dict[str, Any] = {"size": len(text.encode()), "mimeType": "application/json"}
    if said is not None:
        content["text"] = text
    elif latency is not None:
        # There was a reply, and the store does not hold it.
        content["size"] = row["response_bytes"] or 1
    # Status 0 is what browsers write where no response came.
    answered = said is not None or latency is not None
    status = row["http_status"] or (200 if answered else 0)
    return {
        "startedDateTime": plain(row["requested_at"]),
        "time": latency if latency is not None else 0,
        "request": {
            "method": "POST",
            "url": _url(row),
            "httpVersion": "HTTP/1.1",
            "headers": _headers(row),
            "queryString": [],
            "cookies": [],
            "headersSize": -1,
            "bodySize": len(asked.encode()),
            "postData": {"mimeType": "application/json", "text": asked},
        },
        "response": {
            "status": status,
            "statusText": "",
            "httpVersion": "HTTP/1.1",
            "headers": [{"name": "content-type", "value": "application/json"}] if answered else [],
            "cookies": [],
            "content": content,
            "redirectURL": "",
            "headersSize": -1,
            "bodySize": content["size"],
        },
        "cache": {},
        "timings": {"send": 0, "wait": latency if latency is not None else 0, "receive": 0},
        "_mcptally": {name: plain(row[name]) for name in _KEPT if row[name] is not None},
    }


def _url(row: dict[str, Any]) -> str:
    where = row["command"]
    if isinstance(where, str) and where.startswith(("http://", "https://")):
        return where
    return f"stdio://{quote(row['server'] or 'server', safe='')}"


def _headers(row: dict[str, Any]) -> list[dict[str, str]]:
    pairs = {"content-type": "application/json", "mcp-method": row["method"]}
    if row["protocol_version"] and row["protocol_source"] != "fallback":
        pairs["mcp-protocol-version"] = row["protocol_version"]
    return [{"name": name, "value": json.dumps(value)[1:-1]} for name, value in pairs.items()]
