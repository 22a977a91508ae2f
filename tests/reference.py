"""A slow reference reader of transcripts, with which the pipeline is compared.

It uses loops and dicts over JSON lines and nothing of the package: it is a second implementation of
the documented transcript format and tables.
"""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import zstandard

CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
TIMED_OUT = re.compile(r"time[ds]?[ _-]?out|deadline", re.IGNORECASE)
CANCELLED = re.compile(r"\b(cancell?ed|cancell?ation|aborted|abort(ed)?error)\b", re.IGNORECASE)
SAME_SIDE = {"c2s": "c2s", "s2c": "s2c"}
OTHER_SIDE = {"c2s": "s2c", "s2c": "c2s"}
SIDES = {"request": SAME_SIDE, "result": OTHER_SIDE, "error": OTHER_SIDE}
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
SESSION_IN_PATH = re.compile(r"[?&]session_?id=([^&#\s]+)", re.IGNORECASE)


class Number(str):
    """A JSON number as its text, so that 1, 1.0 and "1" differ."""

    __slots__ = ()

    def __repr__(self):
        return f"number {self}"


def refuse(word):
    raise ValueError(word)


def inside(value, *keys):
    """Return the value at a path of keys, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def events(paths):
    """Return every event once, although files may repeat some, sorted by recording and seq."""
    found = {}
    for path in paths:
        data = Path(path).read_bytes()
        if path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        for line in data.split(b"\n"):
            try:
                event = json.loads(
                    line, parse_int=Number, parse_float=Number, parse_constant=refuse
                )
                place = event["recording"], int(event["seq"]), event["event"], event["ts_ns"]
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            found.setdefault(place, event)
    return [found[place] for place in sorted(found)]


def bodies(event):
    """Return the messages of an event with their index in the batch."""
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
    if type(body.get("method")) is str:  # Number is a subclass of str
        return "request" if "id" in body else "notification"
    return next((word for word in ("error", "result") if word in body), "invalid")


def exact(value):
    """Return an id for exact comparison: numbers by their text, strings decoded."""
    return repr(value) if isinstance(value, str) else None


def by_value(value):
    """Return an id for comparison by value, in case its type or digits changed."""
    return float(value) if isinstance(value, str) and NUMBER.fullmatch(value) else None


def exchanges(all_events):
    """Return session, status and closing side of every HTTP exchange."""
    known = defaultdict(dict)
    for event in all_events:
        about = known[event["recording"], event.get("scope")]
        headers, status = event.get("headers") or {}, int(event.get("status") or 0)
        new = {"closed_by": event.get("closed_by"), "status": status or None}
        if status < 400:
            new["session"] = headers.get("mcp-session-id")
        if event.get("phase") == "request":
            new["resumes"] = "last-event-id" in headers
        address = event.get("path") or ""
        if event["event"] == "raw" and event["dir"] == "s2c":  # the endpoint event of old SSE
            address = event.get("text") or ""
        if found := SESSION_IN_PATH.search(address):
            new["path"] = found[1]
        for _, body in bodies(event) if event.get("dir") == "c2s" else []:
            info = inside(body, "params", "_meta", CLIENT_INFO)
            new.setdefault("client", None if info is None else repr(info))
        for key, value in new.items():
            if value is not None:
                about.setdefault(key, value)
    return known


def brackets(group):
    """Pair the messages of a group, in order of arrival. A reply closes the newest open request;
    of the closed requests, the n-th is answered by the n-th reply that closed one."""
    opened, asks, replies = [], [], []
    for message in group:
        if message["kind"] == "request":
            opened.append(message)
        elif opened:
            asks.append(opened.pop())
            replies.append(message)
    return zip(sorted(asks, key=lambda ask: ask["place"]), replies, strict=True)


def read(paths):
    """Return calls, and the number of messages by recording, direction and kind."""
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
    answer([m for m in messages if not m["replay"]])
    cancel(messages)
    calls = [m for m in messages if m["kind"] == "request" and not m["replay"]]
    for call in calls:
        call["outcome"] = outcome(call)
    return calls, Counter((m["recording"], m["dir"], m["kind"]) for m in messages)


def answer(messages):
    """Pair requests and replies within the exchange, the session, then the recording; then those
    of one exchange or session whose ids are equal by value."""
    rounds = {"exact": (exact, ("scope", "session", "recording"))}
    rounds["loose"] = (by_value, ("scope", "session"))
    for match, (same, levels) in rounds.items():
        for level in levels:
            groups = defaultdict(list)
            for message in messages:
                id_ = same(inside(message["body"], "id"))
                if id_ is not None and message["kind"] in SIDES and "with" not in message:
                    asker = SIDES[message["kind"]][message["dir"]]
                    groups[message["recording"], message[level], asker, id_].append(message)
            for group in groups.values():
                for ask, reply in brackets(group):
                    ask["with"], reply["with"], ask["match"] = reply, ask, (match, level)


def cancel(messages):
    """Add `reasons` of cancellations to the latest earlier call with that id."""
    latest = {}
    for message in messages:
        where = message["recording"], message["session"], message["dir"]
        body = message["body"]
        if message["kind"] == "request" and not message["replay"]:
            latest[where, exact(body["id"])] = message
        elif inside(body, "method") == "notifications/cancelled":
            id_ = exact(inside(body, "params", "requestId"))
            if id_ and (where, id_) in latest:
                reason = str(inside(body, "params", "reason"))
                call = latest[where, id_]
                call.setdefault("reasons", []).append(reason)
                call.setdefault("cancelled", message["place"])


def confirms_cancellation(call):
    """Return whether the reply is an error that only reports that the caller cancelled the call."""
    body = call["with"]["body"]
    if str(inside(body, "error", "code")) == "-32800":
        return True
    content = inside(body, "result", "content")
    first = content[0] if isinstance(content, list) and content else None
    failed = inside(body, "result", "isError") is True
    text = inside(first, "text") if failed else inside(body, "error", "message")
    before = "cancelled" in call and call["cancelled"] < call["with"]["place"]
    return before and bool(CANCELLED.search(str(text)))


def outcome(call):
    reasons, about = call.get("reasons", []), call["about"]
    named_a_timeout = any(TIMED_OUT.search(reason) for reason in reasons)
    if "with" in call:
        body = call["with"]["body"]
        if confirms_cancellation(call):
            return "timeout" if named_a_timeout else "cancelled"
        if str(inside(body, "error", "code")) == "-32042":
            return "input_required"
        said = inside(body, "result", "resultType")
        # Revision 2025-11-25 has no resultType: a task replaces the content, or has empty content.
        content = inside(body, "result", "content")
        task = inside(body, "result", "task") and not (isinstance(content, list) and content)
        if "error" in body:
            return "protocol_error"
        if inside(body, "result", "isError") is True:
            return "tool_error"
        return said if said == "input_required" else "task" if task or said == "task" else "ok"
    if named_a_timeout or about.get("status") in (408, 504):
        return "timeout"
    gone = about.get("closed_by") == "client" and (about.get("status") or 0) < 400
    return "cancelled" if reasons or gone else "no_response"
