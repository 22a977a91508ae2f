"""What transcripts say, read slowly: the second opinion that the pipeline is compared with.

Loops and dicts over the JSON lines, and nothing of the package: what both say was understood
twice, from the design's sections on the transcript and the tables.
"""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import zstandard

CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
TIMED_OUT = re.compile(r"time[ds]?[ _-]?out|deadline", re.IGNORECASE)
THERE = {"c2s": "c2s", "s2c": "s2c"}
BACK = {"c2s": "s2c", "s2c": "c2s"}
SIDES = {"request": THERE, "result": BACK, "error": BACK}
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
SESSION_IN_PATH = re.compile(r"[?&]session_?id=([^&#\s]+)", re.IGNORECASE)


class Number(str):
    """A JSON number by its text, so that 1, 1.0 and "1" stay three things."""

    __slots__ = ()

    def __repr__(self):
        return f"number {self}"


def refuse(word):
    raise ValueError(word)


def inside(value, *keys):
    """What lies under `keys`, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def events(paths):
    """Every event once (files may bring some again), by recording and place in it."""
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
        headers, status = event.get("headers") or {}, int(event.get("status") or 0)
        learnt = {"closed_by": event.get("closed_by"), "status": status or None}
        if status < 400:
            learnt["session"] = headers.get("mcp-session-id")
        if event.get("phase") == "request":
            learnt["resumes"] = "last-event-id" in headers
        address = event.get("path") or ""
        if event["event"] == "raw" and event["dir"] == "s2c":  # the endpoint event of old SSE
            address = event.get("text") or ""
        if found := SESSION_IN_PATH.search(address):
            learnt["path"] = found[1]
        for _, body in bodies(event) if event.get("dir") == "c2s" else []:
            info = inside(body, "params", "_meta", CLIENT_INFO)
            learnt.setdefault("client", None if info is None else repr(info))
        for key, value in learnt.items():
            if value is not None:
                about.setdefault(key, value)
    return known


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
    answer([m for m in messages if not m["replay"]])
    cancel(messages)
    calls = [m for m in messages if m["kind"] == "request" and not m["replay"]]
    for call in calls:
        call["outcome"] = outcome(call)
    return calls, Counter((m["recording"], m["dir"], m["kind"]) for m in messages)


def answer(messages):
    """Bring calls and replies together: in the exchange, the session, the recording; then those
    of one exchange or session whose ids are the same number."""
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
    """Give calls the `reasons` they were cancelled for: the latest of that id before."""
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
                latest[where, id_].setdefault("reasons", []).append(reason)


def outcome(call):
    if "with" in call:
        body = call["with"]["body"]
        said = inside(body, "result", "resultType")
        # Revision 2025-11-25 has no resultType: there a task comes instead of content.
        task = inside(body, "result", "task") and "content" not in body["result"]
        if "error" in body:
            return "protocol_error"
        if inside(body, "result", "isError") is True:
            return "tool_error"
        return said if said == "input_required" else "task" if task or said == "task" else "ok"
    reasons, about = call.get("reasons", []), call["about"]
    if any(TIMED_OUT.search(reason) for reason in reasons) or about.get("status") in (408, 504):
        return "timeout"
    return "cancelled" if reasons or about.get("closed_by") == "client" else "no_response"
