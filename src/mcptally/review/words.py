"""Describes a review in words: its progress, its sample's rates, and reviewers' agreement."""

from collections.abc import Iterator

from mcptally.plural import count
from mcptally.review import estimates, sample, settled
from mcptally.review.session import Session


def groups(session: Session) -> str:
    """Describe how many calls the answers decide, and how many the next answers would decide."""
    progress = session.progress()
    return (
        f"{progress.answered} of {progress.total} answered; answers decide "
        f"{100 * progress.decided:.0f} % of the failed calls, the next 10 about groups "
        f"{100 * progress.next_share:.0f} %"
    )


def rates(session: Session) -> Iterator[str]:
    """Yield the rates from the sample, or the reason why there are no rates."""
    drawn = session.sample()
    if drawn is None:
        yield "no sample: draw one with --sample N to compute rates"
        return
    left = len(estimates.missing(drawn, session.settled))
    if left:
        yield f"sample: {len(drawn.drawn) - left} of {len(drawn.drawn)} answered; rates follow then"
        return
    frame = sample.frame(session.store, server=session.server, tool=session.tool)
    if not sample.is_current(drawn, frame):
        yield f"the archive changed since {sample.age(drawn)}: rates are those of the calls then"
    for rate in session.rates():
        yield (
            f"{rate.metric}: {100 * rate.rate:.1f} % of {count(rate.calls, 'recorded call')} "
            f"({100 * rate.low:.1f} to {100 * rate.high:.1f}); of the service "
            f"{100 * rate.service_low:.1f} to {100 * rate.service_high:.1f} %"
        )


def agreement(session: Session) -> Iterator[str]:
    """Yield lines about agreement, programs whose answers do not count yet, and conflicts."""
    known = session.settled
    for pair in settled.pairs(session.reviews):
        yield (
            f"agreement of {pair.first} and {pair.second}: {100 * pair.agreement.share:.0f} % of "
            f"{count(pair.agreement.n, 'call')}, kappa {pair.agreement.kappa:.2f} "
            f"({pair.agreement.low:.2f} to {pair.agreement.high:.2f})"
        )
    for name, found in known.waiting.items():
        yield (
            f"the answers of {name} do not count yet: {count(found.n, 'call')} in common with "
            f"people; {settled.COMMON_ITEMS} with an agreement that is surely at least "
            f"{100 * settled.LEAST_AGREEMENT:.0f} % are needed"
        )
    for conflict in known.conflicts:
        said = ", ".join(f"{who} {answer}" for who, answer in sorted(conflict.answers.items()))
        key = conflict.key
        yield f"conflict: {conflict.server} {conflict.tool} ({key.recording}:{key.seq}): {said}"
