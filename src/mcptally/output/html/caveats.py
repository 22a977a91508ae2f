"""Lists the limitations of a store's data, to prevent wrong conclusions."""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from mcptally.output.html.answers import Answers
from mcptally.output.html.text import name
from mcptally.plural import count


class Caveat(NamedTuple):
    """A limitation of the data."""

    title: str
    sentence: str


def caveats(answers: Answers, *, whole: bool) -> list[Caveat]:
    """Return the limitations of a page's data; `whole` says whether the page contains tables."""
    return [
        *(_too_little_data(answers) if whole else ()),
        *_filters(answers),
        *_verdict(answers),
        *_sample(answers),
        *_incomplete(answers),
        *_not_stored(answers),
        Caveat(
            "Only recorded sessions",
            "The page describes the recorded sessions. Other clients, machines and weeks may give "
            "other results; the intervals do not cover them.",
        ),
        Caveat(
            "Wrong results without an error",
            "A stale price, or an empty list while the network is down, cannot be recognised from "
            "one result. A confidence of 100% means that no failure of the tool was recognised.",
        ),
        Caveat(
            "Latency and tokens",
            "Latency is measured at the recorder, from the last byte of the request to the last "
            "byte of the reply. Tokens are estimated as bytes divided by four; no tokenizer of a "
            "model is used.",
        ),
    ]


def _too_little_data(answers: Answers) -> Iterator[Caveat]:
    tools = answers("tool_scores")
    insufficient = tools.filter(pl.col("success_rate_insufficient_data")).height
    if total := tools.height:
        have = "has" if insufficient == 1 else "have"
        yield Caveat(
            "Too little data",
            f"{count(insufficient)} of {count(total, 'tool')} {have} too little data for a success "
            "rate: fewer than 10 independent calls, or an interval wider than 40 percentage "
            "points. Their rows are shown in grey and should not be relied on. Calls of one "
            "session are not independent, so many calls of one session can count for fewer than "
            "10. A question mark stands before a confidence with too little data.",
        )


def _filters(answers: Answers) -> Iterator[Caveat]:
    if given := answers.asked.filters:
        filters = ", ".join(f"{key} {name(str(value))}" for key, value in given.items())
        yield Caveat(
            "Part of the store",
            f"The page counts only calls selected by: {filters}. Counts of recordings and clients "
            "are for the whole store.",
        )


def _verdict(answers: Answers) -> Iterator[Caveat]:
    yield Caveat(
        "Verdicts can be wrong",
        "Rules and a text model decide from the error who caused a failure. On some servers they "
        "are wrong about many calls with the same text, and no interval on this page includes "
        "that. To get a failure rate that holds anyway, read a sample of calls: "
        "mcptally review STORE --sample 40",
    )
    if unknown := answers.counts["ambiguous"]:
        they_are, widen, them = (
            ("It is", "widens", "it") if unknown == 1 else ("They are", "widen", "them")
        )
        yield Caveat(
            "Failures with unknown cause",
            f"The cause of {count(unknown, 'failed call')} cannot be told from the error text. "
            f"{they_are} not counted in a confidence, but {widen} its interval: the low end counts "
            f"{them} as the tool's, the high end does not.",
        )


def _sample(answers: Answers) -> Iterator[Caveat]:
    recordings, clients = answers.archive["recordings"], answers.archive["clients"]
    first, last = answers.counts["first_call"], answers.counts["last_call"]
    if first is None or last is None:
        return
    hours = (last - first).total_seconds() / 3600
    span = count(round(hours / 24), "day") if hours >= 48 else count(max(1, round(hours)), "hour")
    yield Caveat(
        "Size of the sample",
        f"The data come from {count(recordings, 'recording')} with "
        f"{count(clients, 'client program')}, made within about {span}.",
    )


def _incomplete(answers: Answers) -> Iterator[Caveat]:
    archive = answers.archive
    if archive["gaps"]:
        yield Caveat(
            "Gaps in recordings",
            f"The recordings have {count(archive['gaps'], 'gap')}, which lost "
            f"{count(archive['lost'], 'event')}. Calls there are missing or seem to have no reply.",
        )
    if archive["unclosed"]:
        yield Caveat(
            "Unfinished recordings",
            f"{count(archive['unclosed'])} of {count(archive['recordings'], 'recording')} did not "
            "end normally: the recorder still runs or was killed. The last calls of such a "
            "recording may seem to have no reply.",
        )
    if archive["imported"]:
        come = count(archive["imported"], "recording comes", "recordings come")
        yield Caveat(
            "Imported logs",
            f"{come} from logs of other programs, which often lack times, tool definitions and the "
            "handshake.",
        )
    if archive["untimed"]:
        have = count(archive["untimed"], "call has", "calls have")
        yield Caveat(
            "Calls without a time",
            f"{have} no time and cannot be counted in latencies or changes over time.",
        )
    if archive["nameless"]:
        name_no = count(archive["nameless"], "call names", "calls name")
        yield Caveat(
            "Calls without a tool", f"{name_no} no tool and cannot be counted for any tool."
        )


def _not_stored(answers: Answers) -> Iterator[Caveat]:
    if not answers.archive["payloads"]:
        yield Caveat(
            "No payloads",
            "The store was made without payloads: requests and replies cannot be shown, and the "
            "question repeated_failures has no rows.",
        )
    if unknown := answers.counts["unknown"]:
        yield Caveat(
            "Unknown outcomes",
            f"Of {count(unknown, 'call')}, the imported logs do not say whether the answer was an "
            "error. They count in no rate.",
        )
    if cancelled := answers.counts["cancelled"]:
        yield Caveat(
            "Cancelled calls",
            f"The client cancelled {count(cancelled, 'call')}. They count in neither a success "
            "rate nor a confidence, because the tool might have answered.",
        )
