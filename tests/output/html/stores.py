"""Makes the stores that the tests report on, from generated transcripts."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mcptally as mt
from tests import transcripts as t

MARKER = "pwned"
"""The property of `window` that a successful attack sets."""

ATTACKS = (
    f"<script>window.{MARKER}=1</script>",
    f"</script><script>window.{MARKER}=1</script>",
    f"</style><style>body{{display:none}}</style><img src=x onerror=window.{MARKER}=1>",
    f'"><svg onload=window.{MARKER}=1>',
    f"' onmouseover='window.{MARKER}=1' x='",
    f"<iframe srcdoc='<script>parent.{MARKER}=1</script>'></iframe>",
    f"javascript:window.{MARKER}=1",
    f"--><!--<img src=x onerror=alert('{MARKER}')>",
    "<link rel=stylesheet href=http://127.0.0.1:9/evil.css>",
    "<base href=http://127.0.0.1:9/><meta http-equiv=refresh content='0;url=http://127.0.0.1:9/'>",
    "{{7*7}}${7*7}<%=7*7%>#{7*7}{%raw%}{{ cycler.__init__ }}",
    "\u202egnp.exe\u2066\u200b\u2028\ufeff\u061cname\U000e0041",
    "\x1b[2J\x1b]0;title\x07\x00\x08\x7f\x9b31m",
    "'; touch pwned; $(touch pwned) `touch pwned` !! \\ \"",
    "a\nb\rc\td",
    "-rf --help",
    "&lt;script&gt;&amp;&#x3c;",
    "]]><![CDATA[<script>",
    "url(http://127.0.0.1:9/x.png);background:red}body{display:none",
    "z̷̢̧͔̖̎͒̀" * 10,
    "long" * 200,
)
"""Hostile names and texts: markup, styles, template syntax, bidirectional text, shell syntax."""


def session(
    recording: str,
    server: str,
    tools: Sequence[dict[str, Any]],
    calls: Iterable[tuple[dict[str, Any], dict[str, Any] | None]],
    *,
    client: str = "tester",
) -> Iterator[dict[str, Any]]:
    """The events of a stdio session: handshake, list of tools, calls with their replies, if any."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    asks = t.request(0, "initialize", **hello, clientInfo={"name": client, "version": "1"})
    known = {"capabilities": {"tools": {}}, "serverInfo": {"name": server, "version": "1"}}
    done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    messages = [asks, t.result(0, **(hello | known)), done]
    pairs = [(t.request(1, "tools/list"), t.result(1, tools=list(tools))), *calls]
    for number, pair in enumerate(pairs, 1):
        messages += [each | {"id": number} for each in pair if each]
    yield t.opened(recording, server=server)
    yield from t.exchange(*messages, recording=recording)
    end = {"reason": "stdin-eof", "exit_code": 0, "signal": None, "counts": {}}
    yield t.event("close", len(messages) + 1, recording, **end)


def asked(tool: str, **arguments: Any) -> dict[str, Any]:
    return t.call(0, tool, **arguments)


def answered(text: str, **more: Any) -> dict[str, Any]:
    return t.text(0, text, **more)


def failed(text: str) -> dict[str, Any]:
    return answered(text, isError=True)


CRASH = "Traceback (most recent call last):\nTypeError: 'NoneType' object is not subscriptable"


def defined(tool: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, **properties}}
    return {"name": tool, "description": f"does {tool}", "inputSchema": schema}


def scored(folder: Path, events: Iterable[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    t.write(folder / "traffic.jsonl", events)
    store = folder / "store"
    mt.score([folder / "traffic.jsonl"], out=store, jobs=1)
    return store


def attacked(folder: Path) -> Path:
    """A store with each attack as a server, tool, client and property name, and as text."""
    events: list[dict[str, Any]] = []
    for number, attack in enumerate(ATTACKS):
        for turn in range(2):
            tool = defined(attack, **{f"{attack}{turn}": {"type": "string"}})
            tool["outputSchema"] = {"type": "object", "required": [attack]}
            calls = [
                (asked(attack, n=attack), failed(f"{attack} {CRASH}")),
                (asked(attack, n=1), failed(f"TypeError: cannot read {attack}")),
                (asked(attack, n=1), failed(f"TypeError: cannot read {attack}")),
                (asked(attack, n=2), answered(f"Error: could not read {attack}")),
                (asked(attack, n=3), answered("fine", structuredContent={attack: attack})),
                (asked(attack, n=4), t.error(0, -32603, attack)),
                (asked(attack, n=5), answered(attack)),
            ]
            events += session(f"r{number}-{turn}", attack, [tool], calls, client=attack)
    return scored(folder, events)


def many(folder: Path, tools: int, *, filled: Sequence[str] = ("_of_many",)) -> Path:
    """A store of many tools in two sessions; a third of the calls crash, each with its own text.
    The tools' names end in the words of `filled`, in turn.
    """
    events: list[dict[str, Any]] = []
    for turn in range(2):
        names = [f"tool_number_{n:04}{filled[n % len(filled)]}" for n in range(tools)]
        calls = [
            (asked(name, n=n), failed(f"{CRASH} in {name}") if place % 3 == n else answered("ok"))
            for place, name in enumerate(names)
            for n in range(2)
        ]
        events += session(f"many-{turn}", "gateway", [defined(name) for name in names], calls)
    return scored(folder, events)


def calm(folder: Path, *, crashes: int = 0) -> Path:
    """A store of thirty sessions of one tool; `crashes` of them end in a crash."""
    events: list[dict[str, Any]] = []
    for turn in range(30):
        last = failed(CRASH) if turn < crashes else answered("fine")
        calls = [(asked("echo", n=1), answered("fine")), (asked("echo", n=2), last)]
        events += session(f"calm-{turn}", "calm", [defined("echo")], calls)
    return scored(folder, events)
