"""Compare the pipeline with the reference reader on the same transcripts."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mcptally.messages.decode import decode
from mcptally.messages.integrity import deduplicate
from mcptally.messages.pair import pair
from mcptally.messages.sessions import assign_sessions
from tests import reference


def of_reference(files: Sequence[Path]):
    """Return calls by place as (method, outcome, place of the reply, match), and message counts."""
    calls, counts = reference.read(files)
    return {
        (call["recording"], call["dir"], call["seq"], call["index"]): (
            call["body"]["method"],
            call["outcome"],
            call["with"]["place"] if "with" in call else None,
            call["match"][0] if "with" in call else None,
        )
        for call in calls
    }, counts


def of_pipeline(files: Sequence[Path]):
    """Return the same from the pipeline."""
    events = deduplicate(decode(files), [str(file) for file in files], files)
    paired = pair(events, assign_sessions(events))
    places = {
        pos: (seq, index)
        for pos, seq, index in paired.messages.select("pos", "seq", "index").iter_rows()
    }
    calls = paired.calls.select(
        "recording", "dir", "seq", "index", "method", "outcome", "reply", "match"
    )
    counts = Counter(paired.messages.select("recording", "dir", "kind").rows())
    return {
        tuple(place): (method, outcome, places.get(reply), match)
        for *place, method, outcome, reply, match in calls.iter_rows()
    }, counts


def differences(files: Sequence[Path]) -> list[str]:
    """Return a line for each call and each count that differs, calls first."""
    calls, counts = of_reference(files)
    their_calls, their_counts = of_pipeline(files)
    return [
        f"call {place}: reference {calls.get(place)}, pipeline {their_calls.get(place)}"
        for place in sorted(calls.keys() | their_calls.keys())
        if calls.get(place) != their_calls.get(place)
    ] + [
        f"messages {what}: reference {counts[what]}, pipeline {their_counts[what]}"
        for what in sorted(counts.keys() | their_counts.keys(), key=str)
        if counts[what] != their_counts[what]
    ]
