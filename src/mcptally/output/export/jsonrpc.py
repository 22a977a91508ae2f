"""Reconstructs the JSON-RPC request and reply from a row of `calls`."""

from typing import Any

from mcptally.output.formats.values import dumps


def request_id(row: dict[str, Any]) -> bytes:
    """Return the request's id as JSON, as it was sent; the `call_id` if the id is unknown."""
    text = row.get("request_id")
    return text.encode() if text else dumps(row["call_id"])


def request(row: dict[str, Any]) -> bytes:
    """Return the request with those parameters that stores contain: name, uri and arguments."""
    params: list[bytes] = []
    if (name := row.get("tool") or row.get("prompt")) is not None:
        params.append(b'"name":' + dumps(name))
    if row.get("resource_uri") is not None:
        params.append(b'"uri":' + dumps(row["resource_uri"]))
    if row.get("arguments") is not None:
        params.append(b'"arguments":' + row["arguments"].encode())
    text = b'{"jsonrpc":"2.0","id":%b,"method":%b' % (request_id(row), dumps(row["method"]))
    return text + (b',"params":{%b}}' % b",".join(params) if params else b"}")


def reply(row: dict[str, Any]) -> bytes | None:
    """Return the reply; None if there was no reply or the store does not contain the reply."""
    response = row.get("response")
    if response is None:
        return None
    member = b"error" if row.get("outcome") == "protocol_error" else b"result"
    return b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (request_id(row), member, response.encode())
