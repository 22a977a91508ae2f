"""Gets the answers for the HTML report from a store, and asks each question only once."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from mcptally.analytics import contrasts
from mcptally.analytics.answer import Answer
from mcptally.analytics.compare import Comparison
from mcptally.analytics.filters import parse_time
from mcptally.analytics.reviewing import failure_rate_in_words
from mcptally.analytics.store import Store

MAX_PRIORITIES: Final = 10
"""Maximum number of priorities on the page."""

_COUNTED: Final = (
    *("calls", "ok", "hidden_errors", "cancelled", "input_required", "tasks", "unknown"),
    *("business", "tool_failures", "infrastructure", "ambiguous"),
)
_TOTALS: Final = f"""
    WITH used AS (
        SELECT u.*, n.tool IS NOT NULL AS unlisted
        FROM (
            SELECT server, tool, min(first_call) AS first_call, max(last_call) AS last_call,
                {", ".join(f"sum({name})::BIGINT AS {name}" for name in _COUNTED)}
            FROM usage
            GROUP BY server, tool
        ) u
        LEFT JOIN _unlisted_names n ON n.server IS NOT DISTINCT FROM u.server AND n.tool = u.tool
    )
    SELECT
        {", ".join(f"coalesce(sum({name}), 0)::BIGINT AS {name}" for name in _COUNTED)},
        coalesce(sum(calls) FILTER (unlisted), 0)::BIGINT AS unlisted_calls,
        count(*) FILTER (NOT unlisted) AS tools, min(first_call) AS first_call,
        max(last_call) AS last_call,
        (SELECT count(DISTINCT session) FROM usage) AS sessions,
        (SELECT count(*) FROM (
            SELECT server FROM usage
            UNION
            SELECT server FROM recordings WHERE start IN ('failed', 'unanswered')
        )) AS servers
    FROM used
"""
_ARCHIVE = """
    SELECT
        count(*) AS recordings,
        coalesce(sum(gaps), 0)::BIGINT AS gaps,
        coalesce(sum(lost), 0)::BIGINT AS lost,
        count(*) FILTER ("end" = 'open') AS unclosed,
        count(*) FILTER (transport = 'import') AS imported,
        count(DISTINCT client) AS clients
    FROM recordings
"""
_PAYLOADS = """
    SELECT
        -- The columns of payloads are large: stop at the first row that has one.
        EXISTS (SELECT 1 FROM calls WHERE arguments IS NOT NULL LIMIT 1) AS payloads,
        count(*) FILTER (requested_at IS NULL) AS untimed,
        count(*) FILTER (tool IS NULL) AS nameless
    FROM calls
    WHERE method = 'tools/call' AND dir = 'c2s'
"""


_PERIODS: Final = """
    SELECT
        time_bucket(length, requested_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS start,
        epoch(length)::BIGINT AS seconds,
        count(*) AS calls,
        count(*) FILTER (outcome = 'ok') AS ok,
        count(*) FILTER (_is_tool_failure(verdict)) AS tool_failures,
        count(*) FILTER (_is_infrastructure(verdict)) AS infrastructure,
        count(*) FILTER (_is_ambiguous(verdict)) AS ambiguous,
        count(*) FILTER (_is_business(verdict)) AS business
    FROM _tool_calls, (
        SELECT _period_length(min(requested_at), max(requested_at)) AS length
        FROM _tool_calls
        WHERE {of_clients}
    )
    WHERE {counted}
    GROUP BY ALL
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """The changes relative to the base store."""

    base: str
    """Path of the base store."""
    tools: pl.DataFrame
    """The changes, one row per tool or server."""
    success_rates: dict[tuple[str | None, str | None], dict[str, Any]]
    """Maps (server, tool) to a comparison of the success rates."""


_SCORES: Final = frozenset({"tool_scores", "server_scores"})
_WITHOUT_SCIPY: Final = (
    "* EXCLUDE (confidence_shrunk_low, confidence_shrunk_high, rank_best, rank_worst)"
)
"""The columns of `_SCORES` that DuckDB computes without SciPy, whose import takes 0.2 s. The page
shows no others."""


class Asked:
    """A store's answers to questions, cached until a run replaces the store.

    Attributes:
        store: the store.
        filters: filters for all questions, as in `Store.ask`.
    """

    def __init__(self, store: Store, filters: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.store: Final = store
        self.filters: Final = {key: value for key, value in filters.items() if value is not None}
        self._mark: Any = None
        self._ask: Callable[[str], Answer] = store.ask
        self._frames: Final[dict[str, pl.DataFrame]] = {}
        self._contrasts: Final[dict[int, contrasts.Contrasts]] = {}
        self._totals: Mapping[str, Any] = {}

    def __call__(self, question: str) -> pl.DataFrame:
        """Return the answer to a question."""
        self._forget_if_replaced()
        if question not in self._frames:
            if question in _SCORES:
                answer = self.store.ask(question, **self.filters).select(_WITHOUT_SCIPY)
            else:
                answer = self._ask(question)
            self._frames[question] = answer.pl()
        return self._frames[question]

    def _forget_if_replaced(self) -> None:
        if self._mark != self.store.mark():
            self._mark = self.store.mark()
            self._frames.clear()
            self._contrasts.clear()
            self._totals = {}
            filtered = functools.partial(self.store.ask, **self.filters)
            self._ask = filtered if self.filters else self.store.keeping()

    def totals(self) -> Mapping[str, Any]:
        """Return sums, such as `calls` and `servers`, and the times of the first and last call."""
        if not self.filters:
            self._forget_if_replaced()
            self._totals = self._totals or _row(self.store, _TOTALS)
            return self._totals
        servers = self("server_scores")
        sums = ("unlisted_calls", "tools", "sessions", *_COUNTED)
        found = servers.select(
            *(pl.col(name).sum().cast(pl.Int64) for name in sums),
            pl.col("first_call").min(),
            pl.col("last_call").max(),
            servers=pl.len(),
        )
        return found.row(0, named=True)

    def contrasts(self, most: int) -> contrasts.Contrasts:
        """Return what failing calls of the first `most` problems have in common, by group."""
        if self.filters:
            return contrasts.by_group(self("contrasts").to_dicts())
        problems = self("priorities").head(max(most, MAX_PRIORITIES))
        if problems.height not in self._contrasts:
            found = contrasts.of_tools_with(problems.to_dicts(), self.store.sql)
            self._contrasts[problems.height] = found
        return self._contrasts[problems.height]

    def periods(self) -> pl.DataFrame:
        """Return the numbers of calls per period, for `charts.over_time`."""
        of_tool = {"server", "tool"}
        others = {key: value for key, value in self.filters.items() if key not in of_tool}
        of_clients, first = counted_calls(others)
        counted, second = counted_calls(self.filters)
        query = _PERIODS.format(of_clients=of_clients, counted=counted)
        return self.store.sql(query, params=[*first, *second]).pl()

    def reviewed(self) -> str | None:
        """Return a sentence with the failure rate from a reviewed sample; None without a sample."""
        if self.filters.keys() - {"server", "tool"}:
            return None
        return failure_rate_in_words(self.store, **self.filters)


@dataclasses.dataclass(frozen=True, slots=True)
class Answers:
    """The answers and counts for the page."""

    asked: Asked
    counts: Mapping[str, Any]
    """Totals over all calls; see `Asked.totals`."""
    archive: dict[str, Any]
    compared: Compared | None
    reviewed: str | None
    """A sentence with the failure rate estimated from a reviewed sample, if there is one."""

    def __call__(self, question: str) -> pl.DataFrame:
        """Return the answer to a question."""
        return self.asked(question)


def ask(answer: Asked, base: Store | None = None) -> Answers:
    """Ask all the questions that the page needs.

    Args:
        answer: answers questions about the store.
        base: an earlier store to compare with.

    Raises:
        QueryError, UsageError: a filter is invalid.
    """
    store = answer.store
    return Answers(
        answer,
        answer.totals(),
        archive=_row(store, f"FROM ({_ARCHIVE}), ({_PAYLOADS})"),
        compared=None if base is None else _compared(base.compare(store), answer.filters),
        reviewed=answer.reviewed(),
    )


def counted_calls(filters: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return an SQL condition for the calls that filters select, and its parameters."""
    conditions, values = ["true"], []
    for key, condition in _CONDITIONS.items():
        if key in filters:
            conditions.append(condition)
            time = key in {"since", "until"}
            values.append(parse_time(filters[key]) if time else filters[key])
    return " AND ".join(conditions), values


_CONDITIONS: Final = {
    **{name: f"{name} = ?" for name in ("server", "tool", "client", "model")},
    "since": "requested_at >= ?",
    "until": "requested_at < ?",
}


def _row(store: Store, sql: str) -> dict[str, Any]:
    return dict(store.sql(sql).pl().row(0, named=True))


def _compared(found: Comparison, filters: Mapping[str, Any]) -> Compared:
    tools = found.tools.pl()
    for name in filters.keys() & {"server", "tool"}:
        tools = tools.filter(pl.col(name) == filters[name])
    rates = found.metrics.filter("metric = 'success_rate'").pl()
    return Compared(
        base=str(found.base),
        tools=tools,
        success_rates={(row["server"], row["tool"]): row for row in rates.to_dicts()},
    )
