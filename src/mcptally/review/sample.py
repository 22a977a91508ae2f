"""Draws a sample of a store's calls for review, and predicts the width of the interval."""

import datetime
import hashlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from mcptally.errors import UsageError
from mcptally.review.answers import CallKey, Drawn, Sample, group_id, now
from mcptally.statistics import reviewed
from mcptally.tables.outcomes import FAILED, Verdict, is_verdict, sql_list
from mcptally.tables.usage_sums import TOOL_CALL

STRATA: Final = ("tool_failure", "other_error", "ok")
"""Strata by mcptally's verdict: tool failure, another failure, or no failure."""
LEAST: Final = 20
"""Minimum number of answers in a sample."""


class ReviewedStore(Protocol):
    """The interface through which a review reads a store.

    Its texts must not be masked, because digests are computed from the recorded texts.
    """

    @property
    def manifest(self) -> dict[str, Any]:
        """The content of `store.json`."""
        ...

    @property
    def path(self) -> Any:
        """The folder of the store."""
        ...

    def sql(self, query: str, params: Any = None) -> Any:
        """Return the result of a SELECT as a DuckDB relation."""
        ...


class Frame(NamedTuple):
    """The calls from which a sample is drawn."""

    digest: str
    calls: int


class Plan(NamedTuple):
    """The number of answers that a sample needs, and the expected interval."""

    answers: int
    """Number of answers to ask for, at most the number of calls in the frame."""
    half_width: float
    """Expected half-width of the failure rate's interval if verdicts are as accurate as usual."""


FILTERED: Final = f"{TOOL_CALL} AND ($1 IS NULL OR server = $1) AND ($2 IS NULL OR tool = $2)"
"""The calls in the frame: tool calls that count in rates, of one server or tool if given."""
_FAILED: Final = f"outcome IN {sql_list(FAILED)}"
SHOWN_TEMPLATE: Final = "coalesce(template, '(no text: ' || outcome || ')')"
"""SQL equivalent of `answers.template_of`."""
_FRAME: Final = f"""
SELECT count(*), bit_xor(md5_number_lower(call_id)), count(*) FILTER (NOT ({_FAILED}))
FROM calls WHERE {FILTERED}
"""
_GROUPS: Final = f"""
SELECT server, tool, {SHOWN_TEMPLATE} AS shown,
    coalesce({is_verdict(Verdict.TOOL_FAILURE)}, false) AS is_failure, count(*) AS size,
    arg_min({{recording: recording, seq: seq, dir: dir, "index": "index", verdict: verdict}},
        md5(call_id || $3), 8) AS calls
FROM calls WHERE {FILTERED} AND {_FAILED}
GROUP BY ALL ORDER BY server, tool, shown, is_failure
"""
_OK: Final = f"""
SELECT recording, seq, dir, "index" FROM calls WHERE {FILTERED} AND NOT ({_FAILED})
ORDER BY md5(call_id || $3) LIMIT $4
"""


def frame(store: ReviewedStore, *, server: str | None = None, tool: str | None = None) -> Frame:
    """Return the calls from which a sample would be drawn now."""
    calls, digest, _ = store.sql(_FRAME, params=[server, tool]).fetchall()[0]
    return Frame(f"{digest or 0:016x}", calls)


def plan(
    store: ReviewedStore, n: int, *, server: str | None = None, tool: str | None = None
) -> Plan:
    """Plan a sample of `n` answers."""
    drawn = draw(store, n, who="", server=server, tool=tool, seed=0)
    strata = list(stratified(drawn))
    half = reviewed.expected_half_width(
        [drawn.strata[name] for name, _, _ in strata],
        [[calls[0].size for calls in certain] for _, certain, _ in strata],
        [len(rest) for _, _, rest in strata],
    )
    return Plan(len(drawn.drawn), half)


def stratified(sample: Sample) -> Iterator[tuple[str, list[list[Drawn]], list[Drawn]]]:
    """Yield the strata of a sample's calls.

    Each has a name, the groups of calls that were certain to be drawn (inclusion probability 1),
    and the other calls.
    """
    for name in STRATA:
        certain: dict[str | CallKey, list[Drawn]] = defaultdict(list)
        rest = []
        for each in sample.drawn:
            if each.stratum == name and each.probability == 1:
                certain[each.group or each.key].append(each)
            elif each.stratum == name:
                rest.append(each)
        yield name, list(certain.values()), rest


def draw(
    store: ReviewedStore,
    n: int,
    *,
    who: str,
    server: str | None = None,
    tool: str | None = None,
    seed: int | None = None,
    look: int = 1,
) -> Sample:
    """Draw a sample of `n` calls from the store, or from the calls to one server or tool.

    Args:
        store: the store to draw from.
        n: number of answers to ask for.
        who: name of the person who draws the sample.
        server: only calls to this server.
        tool: only calls to this tool.
        seed: seed of the random number generator; random by default.
        look: 1 for the first sample of this frame, 2 for the second, and so on.

    Raises:
        UsageError: `n` is too small, or no call matches.
    """
    if n < LEAST:
        raise UsageError(f"a sample needs at least {LEAST} answers for an interval, not {n}")
    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    calls, digest, ok = store.sql(_FRAME, params=[server, tool]).fetchall()[0]
    if not calls:
        raise UsageError(f"there is no call of {_about(server, tool)}; see mcptally query STORE")
    names = ("server", "tool", "shown", "is_failure", "size", "calls")
    rows = [
        dict(zip(names, row, strict=True))
        for row in store.sql(_GROUPS, params=[server, tool, str(seed)]).fetchall()
    ]
    groups = {
        "tool_failure": [row for row in rows if row["is_failure"]],
        "other_error": [row for row in rows if not row["is_failure"]],
    }
    sizes = {name: sum(row["size"] for row in own) for name, own in groups.items()} | {"ok": ok}
    given = dict(zip(STRATA, reviewed.allocate([sizes[name] for name in STRATA], n), strict=True))
    rng = np.random.default_rng(seed)
    drawn = [each for name in groups for each in _errors(name, groups[name], given[name], rng)]
    # A stratum with few groups needs fewer answers than allocated.
    left = min(ok, max(given["ok"], n - len(drawn)))
    chosen = store.sql(_OK, params=[server, tool, str(seed), left]).fetchall()
    drawn += [
        Drawn(recording, seq, direction, "ok", 1, left / ok, index=index)
        for recording, seq, direction, index in chosen
    ]
    order = rng.permutation(
        len(drawn)
    )  # shuffle, so that a reviewer who stops early has seen a random part
    at = now()
    name = hashlib.sha256(f"{digest} {seed} {at}".encode()).hexdigest()[:12]
    return Sample(
        id=name,
        at=at,
        who=who,
        seed=seed,
        frame=f"{digest:016x}",
        calls=calls,
        n=n,
        strata=sizes,
        drawn=tuple(drawn[place] for place in order),
        server=server,
        tool=tool,
        look=look,
    )


def _errors(
    stratum: str, rows: list[dict[str, Any]], n: int, rng: np.random.Generator
) -> list[Drawn]:
    """Draw `n` calls from a stratum of failed calls; each of its `rows` is a group of calls."""
    found = reviewed.draw(np.array([row["size"] for row in rows], dtype=np.int64), n, rng)
    certain = {group for group, _ in found.certain}
    return [
        Drawn(
            call["recording"],
            call["seq"],
            call["dir"],
            stratum,
            rows[group]["size"],
            1.0 if group in certain else min(1.0, float(found.probability[group])),
            index=call["index"],
            group=group_id(rows[group]["server"], rows[group]["tool"], rows[group]["shown"]),
            verdict=call["verdict"],
        )
        for group, asked in (*found.certain, *found.rest)
        for call in rows[group]["calls"][:asked]
    ]


def is_current(sample: Sample, found: Frame) -> bool:
    """Return whether a sample was drawn from exactly the calls that the store has now."""
    return (sample.frame, sample.calls) == (found.digest, found.calls)


def _about(server: str | None, tool: str | None) -> str:
    names = [f"{kind} {name!r}" for kind, name in (("server", server), ("tool", tool)) if name]
    return " and ".join(names) or "a tool"


def age(sample: Sample) -> str:
    """Return the date on which a sample was drawn."""
    return datetime.datetime.fromisoformat(sample.at).date().isoformat()
