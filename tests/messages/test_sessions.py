"""Generated conversations give the same calls in the pipeline and in the reference reader.

Messages are written as text, so that ids keep their digits and escapes.
"""

import itertools
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mcptally.pipeline import run
from tests import transcripts
from tests.protocol.conversation import write
from tests.second_opinion import differences, of_pipeline

pytestmark = pytest.mark.slow

IDS = st.sampled_from(
    ["1"] * 16
    + ["2"] * 9
    + ["0"] * 5
    + ['"1"', "1.0", "3"] * 2
    + ['"0"', r'"\u0031"', "1e0", "-1", "100", "1e2", '""', '"a"', '"ü"', r'"\u00fc"', "-0", "0.0"]
    + ["9007199254740993", "9007199254740992", "1.5", "null", "true", "[1]", '{"a": 1}']
    + ['"server-error"', '"listen-1"']
)
SIDES = st.sampled_from(["c2s", "c2s", "c2s", "c2s", "s2c"])
ASKS = st.sampled_from(
    ["tools/call"] * 4 + ["tools/list", "initialize", "server/discover", "ping", "roots/list"]
)
REPLIES = st.sampled_from(
    ['"result":{"content":[]}'] * 4
    + ['"result":{"content":[],"isError":true}', '"result":{"content":[],"isError":false}']
    + ['"result":{"content":[],"isError":"true"}', '"result":{"content":[],"isError":1}']
    + ['"result":{}', '"result":null', '"result":[]', '"result":"fine"', '"result":5']
    + ['"result":{"resultType":"complete","content":[]}']
    + ['"result":{"resultType":"input_required","inputRequests":{},"requestState":"s"}']
    + ['"result":{"resultType":"task","task":{"taskId":"t"}}', '"result":{"task":{"taskId":"t"}}']
    + ['"result":{"task":{"taskId":"t"},"content":[]}']
    + ['"error":{"code":-32601,"message":"no"}', '"error":"no"', '"error":null']
    + ['"error":{"code":0,"message":"Request cancelled"},"result":{}']
)
REASONS = st.sampled_from(
    [
        *(None, '"Request timed out"', '"timed out after 0.5s"', '"Deadline exceeded"'),
        *('"timeout"', '"user pressed stop"', '"caller cancelled"', "5", '""'),
    ]
)
NOTES = st.sampled_from(
    ["notifications/initialized", "notifications/message", "notifications/tools/list_changed"]
)
ODD_MESSAGES = st.sampled_from(
    [
        "5",
        '"hello"',
        "null",
        "{}",
        "[]",
        '{"jsonrpc":"2.0"}',
        '{"id":1}',
        '{"method":5,"id":1}',
        '{"jsonrpc":"2.0","id":1,"method":null,"result":{}}',
        '{"method":"x","params":[1]}',
        '{"jsonrpc":"1.0","id":1,"method":"tools/call"}',
        '{"id":1,"id":2,"method":"tools/call"}',
        '{"id":1,"method":"tools/call","params":"text"}',
        '{"method":"m","id":3,"result":{}}',
        '{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse"}}',
    ]
)
GARBAGE = st.sampled_from(
    [
        b"",
        b"   ",
        b"not json",
        b'{"v":1,"event":"message","recording":"p0","seq":',
        b"[1,2]",
        b"7",
        b'{"event":"message"}',
        b"\xff\xfd\x00",  # with \xfe, a file that begins so is UTF-16 text and not read
        b'{"v":1,"seq":3}',
        b"null",
        b'"text"',
    ]
)
CLIENTS = ["Ann", "Bob"]


def request(id_, method, extra=""):
    return f'{{"jsonrpc":"2.0","id":{id_},"method":"{method}"{extra}}}'


def meta(client):
    info = f'{{"name":"{client}","version":"1"}}'
    return f',"params":{{"_meta":{{"io.modelcontextprotocol/clientInfo":{info}}}}}'


def cancelled(id_, reason):
    why = "" if reason is None else f',"reason":{reason}'
    said = f'{{"requestId":{id_}{why}}}'
    return f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{said}}}'


def progress(token):
    said = f'{{"progressToken":{token},"progress":1}}'
    return f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{said}}}'


@st.composite
def messages(draw):
    """Generate a message: (side, text)."""
    side = draw(SIDES)
    kind = draw(st.integers(0, 19))
    if kind < 7:
        extra = meta(draw(st.sampled_from(CLIENTS))) if draw(st.booleans()) else ""
        return side, request(draw(IDS), draw(ASKS), extra)
    if kind < 15:
        other = "s2c" if side == "c2s" else "c2s"
        return other, f'{{"jsonrpc":"2.0","id":{draw(IDS)},{draw(REPLIES)}}}'
    if kind < 17:
        return side, cancelled(draw(IDS), draw(REASONS))
    if kind < 18:
        return "s2c", progress(draw(IDS))
    if kind < 19:
        return side, f'{{"jsonrpc":"2.0","method":"{draw(NOTES)}"}}'
    return side, draw(ODD_MESSAGES)


@st.composite
def frames(draw):
    """Draw a message or a batch."""
    side, text = draw(messages())
    if draw(st.integers(0, 9)):
        return side, text
    more = draw(st.lists(messages(), max_size=3))
    return side, f"[{','.join([text, *(m for _, m in more)])}]"


@dataclass
class ArchiveLines:
    """Collects the lines of an archive and counts `seq` per recording."""

    lines: list[bytes] = field(default_factory=list)
    seqs: dict[str, int] = field(default_factory=dict)

    def put(self, recording, kind, told):
        seq = self.seqs.get(recording, 0)
        self.seqs[recording] = seq + 1
        head = f'"v":1,"event":"{kind}","recording":"{recording}","seq":{seq}'
        at = 1_795_000_000_000_000_000 + len(self.lines) * 1_000_000
        self.lines.append(f'{{{head},"ts_ns":{at},{told}}}'.encode())

    def say(self, recording, scope, side, text, more=""):
        place = f'"dir":"{side}","scope":{json.dumps(scope)},"bytes":{len(text.encode())}'
        self.put(recording, "message", f'{place}{more},"msg":{text}')

    def http(self, recording, scope, phase, **told):
        side = "c2s" if phase == "request" else "s2c"
        about = json.dumps({"dir": side, "scope": scope, "phase": phase, **told})
        self.put(recording, "http", about[1:-1])


def opened(tape, recording, transport):
    about = {"transport": transport, "server": "demo", "command": ["demo"], "segment": 0}
    tape.put(recording, "open", json.dumps(about)[1:-1])


def oddity(draw, tape, recording, scope):
    """Add a line that is not a message: raw, stderr, gap, or not an event."""
    kind = draw(st.integers(0, 5))
    place = f'"dir":"{draw(SIDES)}","scope":{json.dumps(scope)},"bytes":99'
    if kind == 0:
        tape.put(recording, "raw", f'{place},"why":"not_json","text":"added 41 packages"')
    elif kind == 1:
        known = {
            "id": draw(IDS.filter(lambda id_: id_ != "null")),
            "method": f'"{draw(ASKS)}"',
            "is_error": "true",
        }
        some = draw(st.sets(st.sampled_from(sorted(known))))
        found = "".join(f',"{key}":{known[key]}' for key in sorted(some))
        tape.put(recording, "raw", f'{place},"why":"too_large","truncated":true,"text":"x"{found}')
    elif kind == 2:
        tape.put(recording, "stderr", '"text":"Error: something"')
    elif kind == 3:
        tape.put(recording, "gap", '"lost":1,"why":"disk"')
    else:
        tape.lines.append(draw(GARBAGE))


def pipe(draw, tape, recording):
    opened(tape, recording, "stdio")
    for side, text in draw(st.lists(frames(), max_size=20)):
        tape.say(recording, None, side, text)
        if draw(st.integers(0, 5)) == 0:
            oddity(draw, tape, recording, None)
    if draw(st.booleans()):
        tape.put(recording, "close", '"reason":"server_exited","exit_code":1,"signal":null')


def exchange(draw, tape, recording, scope, sent):
    """Add an HTTP exchange; its session is in a header, the path, an SSE event, or nowhere."""
    named = draw(st.sampled_from(["nowhere", "asked", "answered", "path", "event"]))
    resumes = bool(sent) and draw(st.booleans())
    session = draw(st.sampled_from(["s1", "s2"]))
    headers = {"mcp-session-id": session} if named == "asked" else {}
    if resumes:
        headers["last-event-id"] = "e0"
    path = f"/messages?sessionId={session}" if named == "path" else "/mcp"
    status = draw(st.sampled_from([200, 200, 200, 202, 400, 404, 408, 504]))
    if draw(st.integers(0, 9)):
        method = "GET" if resumes else "POST"
        tape.http(recording, scope, "request", method=method, path=path, headers=headers)
    yield
    if named == "event":
        told = f'"dir":"s2c","scope":"{scope}","bytes":9,"why":"not_json","sse_event":"endpoint"'
        tape.put(recording, "raw", f'{told},"text":"/messages?sessionId={session}"')
    if resumes:
        for side, text, event_id in draw(st.lists(st.sampled_from(sent), min_size=1, max_size=3)):
            tape.say(recording, scope, side, text, f',"sse_id":"{event_id}"')
            yield
    # Event ids are counted from 0 in each stream, so they repeat.
    for number, (side, text) in enumerate(draw(st.lists(frames(), max_size=5))):
        with_id = side == "s2c" and draw(st.integers(0, 3)) > 0
        if with_id:
            sent.append((side, text, str(number)))
        tape.say(recording, scope, side, text, f',"sse_id":"{number}"' if with_id else "")
        yield
    headers = {"mcp-session-id": session} if named == "answered" else {}
    tape.http(recording, scope, "response", status=status, headers=headers)
    yield
    for ender in draw(st.lists(st.sampled_from(["client", "server", "proxy"]), max_size=2)):
        tape.http(recording, scope, "end", closed_by=ender)


def endpoint(draw, tape, recording):
    """Add interleaved exchanges of one recording."""
    opened(tape, recording, "streamable_http")
    sent = []
    scopes = [f"x{number}" for number in range(draw(st.integers(1, 4)))]
    running = [exchange(draw, tape, recording, scope, sent) for scope in scopes]
    while running:
        chosen = draw(st.sampled_from(running))
        if next(chosen, "over") == "over":
            running.remove(chosen)


@st.composite
def archives(draw, kinds=(pipe, endpoint)):
    """Draw the lines of some files."""
    tape = ArchiveLines()
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(kinds))
        kind(draw, tape, f"{kind.__name__[0]}{number}")
    cuts = draw(st.lists(st.integers(0, len(tape.lines)), max_size=3))
    edges = [0, *sorted(cuts), len(tape.lines)]
    files = [tape.lines[a:b] for a, b in itertools.pairwise(edges)]
    if draw(st.integers(0, 5)) == 0:
        files.append(draw(st.sampled_from(files)))
    return files


def written(folder, files, order=None):
    paths = []
    for place, lines in enumerate(files):
        number = order[place] if order else place
        path = Path(folder) / f"{number}.jsonl"
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        paths.append(path)
    return paths


ASK = request("1", "tools/call")
ANSWER = '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'
OTHER_ANSWER = '{"jsonrpc":"2.0","id":"1","result":{"content":[]}}'
ASK_BACK = request("1", "sampling/createMessage")

# Exchange (after its session, where there are two), side, text and SSE id of each message
# (`resume`: the exchange has a Last-Event-ID); then the calls by place, with the place of their
# reply.
EXCHANGES = {
    "a client that always says id 1, and streams that count their events from 0": (
        [
            ("x0", "c2s", ASK, None),
            ("x0", "s2c", ANSWER, "0"),
            ("x1", "c2s", ASK, None),
            ("x1", "s2c", ANSWER, "0"),
        ],
        {2: 3, 5: 6},
    ),
    "two open exchanges whose replies come with the id as a string": (
        [
            ("x0", "c2s", ASK, None),
            ("x1", "c2s", ASK, None),
            ("x1", "s2c", OTHER_ANSWER, None),
            ("x0", "s2c", OTHER_ANSWER, None),
        ],
        {2: 6, 4: 5},
    ),
    "a reply and a request that a resumed stream repeats": (
        [
            ("x0", "c2s", ASK, None),
            ("x0", "s2c", ASK_BACK, "0"),
            ("x0", "s2c", ANSWER, "1"),
            ("resume", "s2c", ASK_BACK, "0"),
            ("resume", "s2c", ANSWER, "1"),
        ],
        {2: 4, 3: None},
    ),
    "a reply on another stream": (
        [("x0", "c2s", ASK, None), ("x1", "s2c", ANSWER, None)],
        {2: 4},
    ),
    "two sessions with one id, each answered on another stream of its own": (
        [
            ("s1/x0", "c2s", ASK, None),
            ("s2/x1", "c2s", ASK, None),
            ("s2/x2", "s2c", ANSWER, None),
            ("s1/x3", "s2c", ANSWER, None),
        ],
        {2: 8, 4: 6},
    ),
}


@pytest.mark.parametrize("case", EXCHANGES)
def test_replies_are_distinguished_by_exchange_and_event_id(tmp_path, case):
    sent, expected = EXCHANGES[case]
    tape = ArchiveLines()
    opened(tape, "r", "streamable_http")
    begun = set()
    for scope, side, text, event_id in sent:
        if scope not in begun:
            begun.add(scope)
            headers = {"mcp-session-id": scope.rpartition("/")[0] or "s1"}
            headers |= {"last-event-id": "0"} if scope == "resume" else {}
            tape.http("r", scope, "request", method="POST", path="/mcp", headers=headers)
        tape.say("r", scope, side, text, f',"sse_id":"{event_id}"' if event_id else "")
    files = written(tmp_path, [tape.lines])
    assert differences(files) == []
    calls, _ = of_pipeline(files)
    replies = {seq: reply and reply[0] for (_, _, seq, _), (*_, reply, _) in calls.items()}
    assert replies == expected


ASK_OF_CLIENT = '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":META}}'


def calls_of(example, folder):
    """The calls of a conversation in the notation of the rules' examples."""
    run.score([write(example, folder / "a.x", "r")], out=folder / "store")
    return pl.read_parquet(folder / "store" / "calls" / "*.parquet").sort("seq")


def test_half_an_hour_without_messages_ends_the_session_of_a_client_without_an_id(tmp_path):
    minutes = (0, 29, 31, 29)
    said = [
        f"+ {pause * 60_000}\nx{place} POST {{}}\nx{place} > {ASK_OF_CLIENT}"
        for place, pause in enumerate(minutes)
    ]
    calls = calls_of("\n".join(said), tmp_path)
    assert set(calls.get_column("session_source")) == {"client"}
    assert calls.get_column("session").rle_id().to_list() == [0, 0, 1, 1]


def test_a_session_id_in_an_error_reply_does_not_start_a_session(tmp_path):
    said = [
        f"x{status} POST {{}}\nx{status} > {ASK_OF_CLIENT}\n"
        f'x{status} {status} {{"mcp-session-id":"new"}}'
        for status in (404, 200)
    ]
    calls = calls_of("\n".join(said), tmp_path)
    assert calls.get_column("session_source").to_list() == ["client", "http_session_id"]


# Without Phase.explain, which runs a failing example hundreds of times more.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


@settings(phases=PHASES)
@given(archives([pipe]))
def test_the_reference_and_the_pipeline_agree_on_any_pipe(files):
    with tempfile.TemporaryDirectory() as folder:
        assert differences(written(folder, files)) == []


@settings(phases=PHASES)
@given(archives([endpoint]))
def test_the_reference_and_the_pipeline_agree_on_any_http_endpoint(files):
    with tempfile.TemporaryDirectory() as folder:
        assert differences(written(folder, files)) == []


@settings(max_examples=settings.default.max_examples // 2, phases=PHASES)
@given(archives(), st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_change_the_result(files, chance):
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        there = written(one, files)
        mixed = list(files)
        chance.shuffle(mixed)
        assert of_pipeline(written(other, mixed)) == of_pipeline(there)


def test_a_cancellation_of_null_cancels_nothing(tmp_path):
    ask = '{"jsonrpc":"2.0","id":null,"method":"tools/call"}'
    cancel = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}'
    [call] = calls_of(f"> {ask}\n> {cancel}", tmp_path).to_dicts()
    assert (call["outcome"], call["cancelled_at"]) == ("no_response", None)


def test_a_null_command_is_replaced_by_the_url(tmp_path):
    begin = transcripts.opened(command=None, url="http://host:1/mcp", transport="streamable_http")
    ask = transcripts.c2s(1, transcripts.call(1, "read"))
    path = transcripts.write(tmp_path / "a.jsonl", [begin, ask])
    run.score([path], out=tmp_path / "store")
    [call] = pl.read_parquet(tmp_path / "store" / "calls" / "*.parquet").to_dicts()
    assert call["command"] == "http://host:1/mcp"
