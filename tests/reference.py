"""What transcripts say, read slowly: the second opinion that the pipeline is compared with.

Loops and dicts over the JSON lines, and nothing of the package: what both say was understood
twice, from the design's sections on the transcript and the tables.
"""

import gzip
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import zstandard

CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
TIMED_OUT = re.compile(r"time[ds]?[ _-]?out|deadline", re.IGNORECASE)
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
SESSION_IN_PATH = re.compile(r"[?&]session_?id=([^&#\s]+)", re.IGNORECASE)


class Number(str):
    """A JSON number by its text, so that 1, 1.0 and "1" stay three things."""

    __slots__ = ()

    def __repr__(self):
        return f"number {self}"


def _refuse(word):
    raise ValueError(word)


def events(paths):
    """Every event once (files may bring some again), by recording and place in it."""
    found = {}
    for path in paths:
        data = Path(path).read_bytes()
        if path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        elif path.suffix == ".gz":
            data = gzip.decompress(data)
        for line in data.split(b"\n"):
            try:
                event = json.loads(
                    line, parse_int=Number, parse_float=Number, parse_constant=_refuse
                )
                place = event["recording"], int(event["seq"]), event["event"], event["ts_ns"]
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            found.setdefault(place, event)
    return [found[place] for place in sorted(found)]


def bodies(event):
    """The messages of an event, with their index in a batch."""
    if event["event"] == "message":
        batch = event["msg"] if isinstance(event["msg"], list) else [event["msg"]]
        return list(enumerate(batch or [None]))
    if event["event"] == "raw" and event.get("why") == "too_large":
        head = {key: event[key] for key in ("id", "method") if event.get(key) is not None}
        if "method" not in head:
            head["result"] = {"isError": event.get("is_error")}
        return [(0, head)] if "id" in head or "method" in head else []
    return []


def kind(body):
    if not isinstance(body, dict):
        return "invalid"
    if type(body.get("method")) is str:  # not a number, which is a str of ours too
        return "request" if "id" in body else "notification"
    return next((word for word in ("error", "result") if word in body), "invalid")


def exact(value):
    """An id as it must come back: numbers by their text, strings as decoded."""
    return repr(value) if isinstance(value, str) else None


def by_value(value):
    """What is left of a number whose type or digits changed on the way."""
    return float(value) if isinstance(value, str) and NUMBER.fullmatch(value) else None


def exchanges(all_events):
    """What is known of every HTTP exchange: the session it names, status, who ended it."""
    known = defaultdict(dict)
    for event in all_events:
        about = known[event["recording"], event.get("scope")]
        if event["event"] == "http":
            headers = event.get("headers") or {}
            status = int(event.get("status") or 0)
            if event.get("closed_by"):
                about.setdefault("closed_by", event["closed_by"])
            if "mcp-session-id" in headers and status < 400:
                about.setdefault("session", headers["mcp-session-id"])
            if event.get("phase") == "request":
                about["resumes"] = "last-event-id" in headers
            if status:
                about.setdefault("status", status)
            in_path = SESSION_IN_PATH.search(event.get("path") or "")
        else:
            in_path = SESSION_IN_PATH.search(str(event.get("text"))) if _endpoint(event) else None
        if in_path:
            about.setdefault("path", in_path[1])
        for _, body in bodies(event):
            params = body.get("params") if isinstance(body, dict) else None
            meta = params.get("_meta") if isinstance(params, dict) else None
            info = meta.get(CLIENT_INFO) if isinstance(meta, dict) else None
            if info is not None and event.get("dir") == "c2s":
                about.setdefault("client", json.dumps(info))
    return known


def _endpoint(event):
    text = event.get("text") or ""
    return event["event"] == "raw" and (event.get("sse_event") == "endpoint" or text[:1] == "/")


def brackets(group):
    """Pairs of a group in order of arrival: a reply closes the newest request that is open;
    of the requests so closed the n-th is answered by the n-th such reply."""
    opened, asks, replies = [], [], []
    for message in group:
        if message["kind"] == "request":
            opened.append(message)
        elif opened:
            asks.append(opened.pop())
            replies.append(message)
    return zip(sorted(asks, key=lambda ask: ask["place"]), replies, strict=True)


def read(paths):
    """Calls, and the number of messages by recording, direction and kind."""
    all_events = events(paths)
    known = exchanges(all_events)
    messages, seen = [], set()
    for event in all_events:
        scope = event.get("scope")
        about = known[event["recording"], scope] if scope is not None else {}
        session = next((about[k] for k in ("session", "path", "client") if k in about), None)
        for index, body in bodies(event):
            sent = session, event["recording"], event.get("sse_id"), event["dir"], index, repr(body)
            message = {
                "recording": event["recording"], "dir": event["dir"], "seq": int(event["seq"]),
                "index": index, "place": (int(event["seq"]), index), "kind": kind(body),
                "scope": scope, "session": session, "body": body, "about": about,
                "replay": bool(event.get("sse_id")) and sent in seen and about.get("resumes", True),
            }  # fmt: skip
            messages.append(message)
            seen.add(sent)
    _answer([m for m in messages if not m["replay"]])
    calls = [m for m in messages if m["kind"] == "request" and not m["replay"]]
    _cancel(messages)
    for call in calls:
        call["outcome"] = _outcome(call)
    return calls, Counter((m["recording"], m["dir"], m["kind"]) for m in messages)


def _answer(messages):
    """Bring calls and replies together: in the exchange, the session, the recording; then those
    of one exchange or session whose ids are the same number."""
    rounds = {"exact": (exact, ("scope", "session", "recording"))}
    rounds["loose"] = (by_value, ("scope", "session"))
    for match, (same, levels) in rounds.items():
        for level in levels:
            groups = defaultdict(list)
            for message in messages:
                ask = message["kind"] == "request"
                if message["kind"] in ("request", "result", "error") and "with" not in message:
                    key = same(message["body"].get("id"))
                    side = message["dir"] if ask else {"c2s": "s2c"}.get(message["dir"], "c2s")
                    where = message["recording"], message[level]
                    if key is not None:
                        groups[where, side, key].append(message)
            for group in groups.values():
                for ask, reply in brackets(group):
                    ask["with"], reply["with"], ask["match"] = reply, ask, (match, level)


def _cancel(messages):
    """Give calls the `reasons` they were cancelled for: the latest of that id before."""
    latest = {}
    for message in sorted(messages, key=lambda m: (m["recording"], m["place"])):
        where = message["recording"], message["session"], message["dir"]
        if message["kind"] == "request" and not message["replay"]:
            latest[where, exact(message["body"]["id"])] = message
        elif message["kind"] == "notification" and isinstance(message["body"].get("params"), dict):
            params = message["body"]["params"]
            id_ = exact(params.get("requestId"))
            call = latest.get((where, id_)) if id_ else None
            if message["body"]["method"] == "notifications/cancelled" and call:
                call.setdefault("reasons", []).append(str(params.get("reason")))


def _outcome(call):
    if "with" in call:
        body = call["with"]["body"]
        result = body.get("result") if isinstance(body.get("result"), dict) else {}
        if "error" in body:
            return "protocol_error"
        if result.get("isError") is True:
            return "tool_error"
        if result.get("resultType") == "input_required":
            return "input_required"
        # Revision 2025-11-25 has no resultType: there a task comes instead of content.
        task = "task" in result and "content" not in result
        return "task" if task or result.get("resultType") == "task" else "ok"
    reasons, about = call.get("reasons", []), call["about"]
    if any(TIMED_OUT.search(reason) for reason in reasons) or about.get("status") in (408, 504):
        return "timeout"
    return "cancelled" if reasons or about.get("closed_by") == "client" else "no_response"
