"""Writes HAR 1.2. Each call becomes a POST with a JSON body, whatever its transport.

Calls over stdio have the URL `stdio://SERVER`. Server requests and calls without a time are
omitted, because HAR cannot represent them. The member `_mcptally` of an entry contains the outcome,
the verdict and other columns without a counterpart in HAR.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, Final
from urllib.parse import quote

import pyarrow as pa

import mcptally
from mcptally.output.formats.values import dumps, plain
from mcptally.output.formats.written import NO_TIME, Written

_FROM_SERVER: Final = "requests of the server"
_EXTRA_COLUMNS: Final = (
    *("call_id", "recording", "session", "server", "tool", "outcome", "verdict", "reason"),
    *("fault", "retryable", "certainty", "error_code", "error_text"),
)


def write(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,  # noqa: ARG001  (entries have a schema of their own)
    file: BinaryIO,
) -> Written:
    """Write a single document with one entry per call."""
    left_out = {_FROM_SERVER: 0, NO_TIME: 0}
    creator = {"name": "mcptally", "version": mcptally.__version__}
    head = dumps({"version": "1.2", "creator": creator})
    file.write(b'{"log":' + head[:-1] + b',"entries":[\n')
    first = True
    for batch in batches:
        for row in batch.to_pylist():
            if row["dir"] == "s2c":
                left_out[_FROM_SERVER] += 1
                continue
            if row["requested_at"] is None:
                left_out[NO_TIME] += 1
                continue
            file.write((b"" if first else b",\n") + dumps(_entry(row)))
            first = False
    file.write(b"\n]}}\n")
    return Written(left_out)


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    request_text, reply_bytes = _request(row).decode(), _reply(row)
    reply_text = "" if reply_bytes is None else reply_bytes.decode()
    latency = row["latency_ms"]
    content: dict[str, Any] = {"size": len(reply_text.encode()), "mimeType": "application/json"}
    if reply_bytes is not None:
        content["text"] = reply_text
    elif latency is not None:
        # The call has a reply, but the store does not contain its text.
        content["size"] = row["response_bytes"] or 1
    # Like browsers, write status 0 for requests without a response.
    answered = reply_bytes is not None or latency is not None
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
            "bodySize": len(request_text.encode()),
            "postData": {"mimeType": "application/json", "text": request_text},
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
        "_mcptally": {name: plain(row[name]) for name in _EXTRA_COLUMNS if row[name] is not None},
    }


def _url(row: dict[str, Any]) -> str:
    command = row["command"]  # over HTTP, `command` contains the URL
    if isinstance(command, str) and command.startswith(("http://", "https://")):
        return command
    return f"stdio://{quote(row['server'] or 'server', safe='')}"


def _headers(row: dict[str, Any]) -> list[dict[str, str]]:
    pairs = {"content-type": "application/json", "mcp-method": row["method"]}
    if row["protocol_version"] and row["protocol_source"] != "fallback":
        pairs["mcp-protocol-version"] = row["protocol_version"]
    return [{"name": name, "value": json.dumps(value)[1:-1]} for name, value in pairs.items()]


def _request_id(row: dict[str, Any]) -> bytes:
    """Return the request's id as JSON, as it was sent; the `call_id` if the id is unknown."""
    text = row.get("request_id")
    return text.encode() if text else dumps(row["call_id"])


def _request(row: dict[str, Any]) -> bytes:
    """Return the request with those parameters that stores contain: name, uri and arguments."""
    params: list[bytes] = []
    if (name := row.get("tool") or row.get("prompt")) is not None:
        params.append(b'"name":' + dumps(name))
    if row.get("resource_uri") is not None:
        params.append(b'"uri":' + dumps(row["resource_uri"]))
    if row.get("arguments") is not None:
        params.append(b'"arguments":' + row["arguments"].encode())
    text = b'{"jsonrpc":"2.0","id":%b,"method":%b' % (_request_id(row), dumps(row["method"]))
    return text + (b',"params":{%b}}' % b",".join(params) if params else b"}")


def _reply(row: dict[str, Any]) -> bytes | None:
    """Return the reply; None if there was no reply or the store does not contain the reply."""
    response = row.get("response")
    if response is None:
        return None
    member = b"error" if row.get("outcome") == "protocol_error" else b"result"
    return b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (_request_id(row), member, response.encode())
