"""Small archives to review, and stores of them."""

from pathlib import Path

import mcptally as mt
from mcptally.review.session import Session
from tests.transcripts import call, exchange, opened, request, result, text, write


def recording(name, results, *, server="demo", description="Say it again"):
    """Return a recording of calls to `echo`, with each result as (text, is_error)."""
    tool = {"name": "echo", "description": description, "inputSchema": {"type": "object"}}
    talk = [request("list", "tools/list"), result("list", tools=[tool])]
    for number, (words, is_error) in enumerate(results):
        talk += [call(number, word=str(number)), text(number, words, isError=is_error)]
    return [opened(name, server=server), *exchange(*talk, recording=name)]


def full(number):
    return (f"Quota of the printing service used up: {number} of 9 pages", True)


OK = ("fine", False)
UNKNOWN_TOPIC = ("No topic called 'x' was subscribed to", True)


def archive(folder: Path, *more):
    """Write a recording `a` with two groups of errors and results, and the recordings `more`."""
    folder.mkdir(exist_ok=True)
    first = recording("a", [*map(full, range(5)), *[UNKNOWN_TOPIC] * 2, *[OK] * 6])
    for events in (first, *more):
        write(folder / f"{events[0]['recording']}.jsonl", events)
    return folder


def scored(folder: Path, *more):
    """The archive of `archive` and its store."""
    mt.score(archive(folder / "traces", *more), out=folder / "store")
    return mt.open_store(folder / "store")


def session(store, path=None, who="ann", **about):
    return Session(store, path, who=who, **about)


def verdicts(store):
    """Map each call's recording and position to verdict, fault and rule."""
    rows = store.sql("SELECT recording, seq, outcome, verdict, fault, rule FROM calls").fetchall()
    return {(recording, (seq - 3) // 2): tuple(rest) for recording, seq, *rest in rows if seq > 2}


def blind(folder: Path):
    """An archive whose largest group `zoe` answered, and its store with the answer applied."""
    store = scored(folder)
    first = session(store, who="zoe")
    [item] = first.next_items()
    first.answer(item, "account", why="the printers", group=True)
    mt.score(folder / "traces", out=store.path)
