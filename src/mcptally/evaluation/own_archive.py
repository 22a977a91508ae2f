"""Measures how accurate verdicts are on a user's own archive, from a reviewed sample."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mcptally.analytics.reviewing import open_session
from mcptally.analytics.store import Store
from mcptally.errors import UsageError, as_argument
from mcptally.redaction.display import clean_line, mask_text
from mcptally.review import estimates, items
from mcptally.review.answers import CANNOT_TELL, Answer, Drawn, Sample
from mcptally.review.apply import verdict_of
from mcptally.review.settled import Settled
from mcptally.statistics.intervals import share_interval
from mcptally.statistics.reviewed import UNKNOWN, Interval, Stratum, reviewed_rate

NO_RULE: Final = "(none)"
"""Stands in for a rule's id if the text model decided and no matching rule had this verdict."""
TEXTS: Final = 3
"""Maximum number of example texts for a rule."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerAccuracy:
    """The accuracy of verdicts on the calls to one server, estimated from the sample."""

    server: str | None
    answers: int
    right: float
    """Share of correct verdicts, in which each answer has the weight of the calls that it
    represents."""
    low: float
    high: float


@dataclasses.dataclass(frozen=True, slots=True)
class WrongRule:
    """A rule whose verdicts reviewers have contradicted."""

    rule: str
    answers: int
    """Number of reviewed calls on which the rule decided."""
    wrong: int
    texts: list[str]
    """Texts of calls that the rule misjudged, with secrets masked."""


@dataclasses.dataclass(frozen=True, slots=True)
class OwnQuality:
    """The accuracy of verdicts on one archive."""

    calls: int
    """Number of calls from which the sample was drawn."""
    answers: int
    accuracy: Interval
    """Share of calls with a correct verdict. For a call that worked, it is correct that it has no
    verdict."""
    failed: Interval
    """Share of correct verdicts among the calls that mcptally reported as failed."""
    servers: list[ServerAccuracy]
    rules: list[WrongRule]


def evaluate_store(
    store: Store, *, reviews: str | Path | None = None, server: str | None = None
) -> OwnQuality:
    """Measure the accuracy of verdicts from the last sample of a store, or of one of its servers.

    Args:
        store: the store.
        reviews: the file of answers; the default is in the archive's folder.
        server: the server whose sample to use; None for the sample of the whole store.

    Raises:
        UsageError: there is no sample, or some of its calls have not been reviewed.
    """
    session = open_session(store, reviews, server=server)
    sample, settled = session.sample(), session.settled
    how = f"mcptally review {as_argument(store.path)} --sample 40"
    if sample is None:
        raise UsageError(f"{store.path}: has no reviewed sample; draw one with: {how}")
    if left := len(estimates.missing(sample, settled)):
        raise UsageError(
            f"{store.path}: {left} of {len(sample.drawn)} calls of the sample have no answer; go "
            f"on with: mcptally review {as_argument(store.path)} --sample {sample.n}"
        )
    right = _strata(sample, settled)
    failed = [each for name, each in right.items() if name != "ok"]
    return OwnQuality(
        sample.calls,
        len(sample.drawn),
        reviewed_rate(list(right.values())),
        reviewed_rate(failed) if failed else UNKNOWN,
        _by_server(sample, settled),
        _wrong_rules(store, settled),
    )


def _is_right(drawn: Drawn, settled: Settled) -> float:
    answer = settled.calls.get(drawn.key)
    if answer is None or answer.answer == CANNOT_TELL:
        return float("nan")
    return float(verdict_of(answer.answer) == drawn.verdict)


def _strata(sample: Sample, settled: Settled) -> dict[str, Stratum]:
    return estimates.by_stratum(
        sample, {each.key: _is_right(each, settled) for each in sample.drawn}
    )


class _Weighed(NamedTuple):
    weight: float
    right: float


def _by_server(sample: Sample, settled: Settled) -> list[ServerAccuracy]:
    """Return the accuracy per server, with an interval based on Kish's effective sample size."""
    weights = estimates.weights(sample)
    by_server: dict[str | None, list[_Weighed]] = defaultdict(list)
    for each in sample.drawn:
        right = _is_right(each, settled)
        if not np.isnan(right):
            by_server[settled.calls[each.key].server].append(_Weighed(weights[each.key], right))
    found = [_of_server(server, rows) for server, rows in by_server.items()]
    return sorted(found, key=lambda row: (-row.answers, row.server or ""))


def _of_server(server: str | None, rows: Sequence[_Weighed]) -> ServerAccuracy:
    weight = np.array([row.weight for row in rows])
    right = float(weight @ np.array([row.right for row in rows]) / weight.sum())
    n_eff = weight.sum() ** 2 / (weight**2).sum()
    return ServerAccuracy(server, len(rows), right, *share_interval(right, n_eff))


def _wrong_rules(store: Store, settled: Settled) -> list[WrongRule]:
    """Return the rules that answers of any review mode contradict, most contradicted first."""
    decided: dict[str, list[Answer]] = defaultdict(list)
    for answer in settled.calls.values():
        if answer.verdict is not None and answer.answer != CANNOT_TELL:
            decided[answer.rule or NO_RULE].append(answer)
    wrong = {
        rule: [row for row in rows if verdict_of(row.answer) != row.verdict]
        for rule, rows in decided.items()
    }
    found = [
        WrongRule(rule, len(decided[rule]), len(rows), _texts(store, rows))
        for rule, rows in wrong.items()
        if rows
    ]
    return sorted(found, key=lambda row: (-row.wrong, row.rule))


def _texts(store: Store, rows: Sequence[Answer]) -> list[str]:
    shown = items.of_keys(store, [row.key for row in rows])
    counts = Counter(item.error_text or item.response or "" for item in shown)
    return [clean_line(mask_text(text))[:120] for text, _ in counts.most_common(TEXTS)]


def lines(quality: OwnQuality) -> Iterator[str]:
    """Yield the result as lines of Markdown."""
    yield "## Verdict on this archive\n"
    yield (
        f"{quality.answers} calls of {quality.calls:,} were drawn and reviewed. Right: "
        f"{_share(quality.accuracy)} of all calls, {_share(quality.failed)} of those that we said "
        "failed.\n"
    )
    yield "| server | answers | right |\n|---|---|---|"
    for row in quality.servers:
        interval = Interval(row.right, row.low, row.high)
        yield f"| {clean_line(row.server or '')} | {row.answers} | {_share(interval)} |"
    if quality.rules:
        yield "\n| rule | answers | wrong | texts |\n|---|---|---|---|"
    for rule in quality.rules:
        texts = "; ".join(rule.texts).replace("|", "\\|")
        yield f"| {clean_line(rule.rule)} | {rule.answers} | {rule.wrong} | {texts} |"


def _share(found: Interval) -> str:
    return f"{found.rate:.3f} [{found.low:.3f}, {found.high:.3f}]"


def plain(quality: OwnQuality) -> dict[str, Any]:
    """Convert the result to plain values for JSON."""
    return dataclasses.asdict(quality) | {
        name: getattr(quality, name)._asdict() for name in ("accuracy", "failed")
    }
