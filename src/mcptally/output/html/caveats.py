"""What the data cannot say, in sentences with numbers: the reader's warning before acting."""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from mcptally.output.html.answers import Answers
from mcptally.output.html.text import count, name, percent


class Limit(NamedTuple):
    """Something that limits what may be concluded."""

    title: str
    sentence: str


def unsaid(answers: Answers) -> list[Limit]:
    """Title and sentence of everything that limits what may be concluded from this page."""
    return [
        *_too_little(answers),
        *_chosen(answers),
        *_verdict(answers),
        *_sessions(answers),
        *_missing(answers),
        *_kept(answers),
        Limit(
            "One place, one time",
            "These are the sessions that were recorded, by the recorders that stood there. Other "
            "clients, machines and weeks may fare otherwise; an interval says nothing of them.",
        ),
        Limit(
            "Wrong answers that look right",
            "An empty list while the network is down, or a stale price, cannot be seen in one "
            "result. A failure rate of 0% means: nothing that failed could be seen to fail.",
        ),
        Limit(
            "Latency and tokens",
            "Latency is what the recorder saw, between the last byte of the request and the last "
            "of the reply. Tokens are an estimate, bytes over four: no model's tokenizer is asked.",
        ),
    ]


def _too_little(answers: Answers) -> Iterator[Limit]:
    total = answers.tools.height
    thin = answers.tools.filter(pl.col("insufficient_data")).height
    if total:
        yield Limit(
            "Too little data",
            f"For {count(thin)} of {count(total, 'tool')} there is too little: fewer than 10 "
            "independent calls, or an interval wider than 40 points. Their rates are shown in grey "
            "and prove nothing. Calls of one session are not independent, so many calls of one "
            "session can be worth less than ten.",
        )


def _chosen(answers: Answers) -> Iterator[Limit]:
    if answers.filters:
        chosen = ", ".join(f"{key} {name(str(value))}" for key, value in answers.filters.items())
        yield Limit(
            "A part of the store",
            f"This page counts only what was chosen: {chosen}. What is said of recordings is said "
            "of all.",
        )


def _verdict(answers: Answers) -> Iterator[Limit]:
    measured = answers.measured
    called, failures = measured["called_failures"], measured["labelled_failures"]
    spared, others = measured["called_others"], measured["labelled_others"]
    yield Limit(
        "The verdict errs",
        "Whose fault a failure is, is read from its text by rules. On errors labelled by hand they "
        f"found {called} of {failures} tool failures ({percent(called / failures)}), and called "
        f"{others - spared} of {others} other errors a tool failure "
        f"({percent(1 - spared / others)}). The column failure_rate_corrected of tool_scores takes "
        "that into account.",
    )
    unknown = answers.counts["ambiguous"]
    if unknown:
        yield Limit(
            "Nobody can tell",
            f"{count(unknown, 'failed call')} had a text that hides the cause. "
            f"{'It is' if unknown == 1 else 'They are'} in no failure rate.",
        )


def _sessions(answers: Answers) -> Iterator[Limit]:
    recordings, clients = answers.archive["recordings"], answers.archive["clients"]
    first, last = answers.first_call, answers.last_call
    if first is None or last is None:
        return
    hours = (last - first).total_seconds() / 3600
    span = count(round(hours / 24), "day") if hours >= 48 else count(max(1, round(hours)), "hour")
    yield Limit(
        "What was sampled",
        f"{count(recordings, 'recording')} with {count(clients, 'kind')} of client, made within "
        f"about {span}.",
    )


def _missing(answers: Answers) -> Iterator[Limit]:
    archive = answers.archive
    if archive["gaps"]:
        yield Limit(
            "Lost on the way",
            f"{count(archive['gaps'], 'gap')} in the recordings lost "
            f"{count(archive['lost'], 'event')}; calls in them are missing, or seem unanswered.",
        )
    if archive["unclosed"]:
        yield Limit(
            "Stopped hard",
            f"{count(archive['unclosed'], 'recording')} of {count(archive['recordings'])} never "
            "closed: still running, or killed. Their last calls may look unanswered.",
        )
    if archive["imported"]:
        yield Limit(
            "Other people's logs",
            f"{count(archive['imported'], 'recording')} came from logs of other programs, which "
            "keep less: often no times, no definitions of tools, no handshake.",
        )
    if archive["untimed"]:
        yield Limit(
            "No times",
            f"{count(archive['untimed'], 'call')} came without a time and "
            f"{'is' if archive['untimed'] == 1 else 'are'} in no latency and no timeline.",
        )
    if archive["nameless"]:
        yield Limit(
            "No name",
            f"{count(archive['nameless'], 'call')} named no tool and "
            f"{'is' if archive['nameless'] == 1 else 'are'} in no row here.",
        )


def _kept(answers: Answers) -> Iterator[Limit]:
    if not answers.archive["payloads"]:
        yield Limit(
            "No payloads",
            "The store was made without payloads: no call can be shown whole, and repeated calls "
            "cannot be told from others.",
        )
    cancelled = answers.counts["cancelled"]
    if cancelled:
        yield Limit(
            "Cancelled",
            f"{count(cancelled, 'call')} the client cancelled; whether the tool would have "
            "answered is unknown, and no rate counts them.",
        )
