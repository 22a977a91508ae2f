"""Checks gates on rates from reviewed samples, such as `reviewed.failure_rate > 5%`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from mcptally.analytics.store import Store
from mcptally.gates.limits import Gate, Result, points
from mcptally.review.place import file_of_store
from mcptally.statistics.reviewed import Interval, difference

if TYPE_CHECKING:
    from mcptally.review.estimates import ReviewedRate

SCOPE: Final = "reviewed"
HOW: Final = "no sample is reviewed completely; draw one with: mcptally review STORE --sample 40"


def check(store: Store, gates: Sequence[Gate]) -> Iterator[Result]:
    """Check gates on the rates that are estimated from a store's completely reviewed samples."""
    mine = [gate for gate in gates if gate.scope == SCOPE]
    rates = _rates(store) if mine else []
    for gate in mine:
        found = [rate for rate in rates if _fits(gate, rate)]
        if not found:
            yield Result(gate, "undecided", None, None, f"{gate.column}: {HOW}")
        for rate in found:
            low, high = rate.service_low, rate.service_high
            message = (
                f"{SCOPE}.{rate.metric} is {rate.rate:.1%} ({low:.1%} to {high:.1%}) from "
                f"{rate.answers} answers; {gate.bound}"
            )
            yield Result(gate, gate.state(low, high), rate.server, rate.tool, message)


def check_change(base: Store, new: Store, gates: Sequence[Gate]) -> Iterator[Result]:
    """Check gates on the changes in estimated rates between two stores with reviewed samples."""
    mine = [gate for gate in gates if gate.scope == SCOPE]
    found = changes(base, new) if mine else []
    for gate in mine:
        fitting = [each for each in found if _fits(gate, each[1])]
        if not fitting:
            yield Result(gate, "undecided", None, None, f"{gate.column}: of both stores, {HOW}")
        for _, rate, change in fitting:
            message = (
                f"{SCOPE}.{rate.metric} changed by {points(change.rate)} "
                f"({points(change.low)} to {points(change.high)}); {gate.bound}"
            )
            state = gate.state(change.low, change.high)
            yield Result(gate, state, rate.server, rate.tool, message)


def changes(base: Store, new: Store) -> "list[tuple[ReviewedRate, ReviewedRate, Interval]]":
    """Return both values and the difference for each rate that both stores' samples provide."""
    before = {(rate.metric, rate.server, rate.tool): rate for rate in _rates(base)}
    after = {(rate.metric, rate.server, rate.tool): rate for rate in _rates(new)}
    return [
        (before[key], after[key], difference(before[key].service, after[key].service))
        for key in before
        if key in after
    ]


def lines(base: Store, new: Store) -> Iterator[str]:
    """Yield a sentence for each change in a rate between two stores with reviewed samples."""
    for before, after, change in changes(base, new):
        about = " ".join(filter(None, (after.server, after.tool))) or "all calls"
        yield (
            f"reviewed {after.metric} of {about}: {100 * before.rate:.1f} % to "
            f"{100 * after.rate:.1f} %, a change of {points(change.rate)} "
            f"({100 * change.low:+.1f} to {100 * change.high:+.1f})"
        )


def _rates(store: Store) -> "list[ReviewedRate]":
    """Return the rates from completely reviewed samples; most stores have none."""
    file = file_of_store(store.manifest, store.path)
    if file is None or not file.exists():
        return []
    from mcptally.analytics.reviewing import reviewed_rates  # noqa: PLC0415  (loads polars)

    return reviewed_rates(store, file)


def _fits(gate: Gate, rate: "ReviewedRate") -> bool:
    if rate.metric != gate.column:
        return False
    # A rate for the whole archive says nothing about any single server.
    if rate.server is None and gate.server != "*":
        return False
    return gate.matches(rate.server, rate.tool)
