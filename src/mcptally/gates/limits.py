"""Checks gates, which are limits on a store's scores or on the changes between two stores.

A gate is written as a column, `>` or `<`, and a number (`failure_rate > 5%`); in a comparison, it
can also be a kind of change (`worse`). A gate fails if the whole confidence interval is beyond the
limit, and passes if the whole interval is within it. Otherwise, or with fewer than `MIN_SESSIONS`
sessions, the gate is undecided.
"""

import dataclasses
import fnmatch
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from mcptally.analytics.compare import COMPARED, RANK, Comparison
from mcptally.analytics.store import Store
from mcptally.analytics.views import answer_columns
from mcptally.errors import UsageError, near
from mcptally.plural import count as count_of
from mcptally.review.answers import RATES
from mcptally.rules.reference_page import find_rules
from mcptally.tables.findings import Severity
from mcptally.tables.outcomes import Verdict
from mcptally.tables.values import SHARE, cell
from mcptally.toml_files import user_rows

State = Literal["failed", "undecided", "passed"]

MIN_SESSIONS: Final = 3
"""Number of sessions below which a gate is undecided, because a single failure in one session would
too often exceed a limit of 20 %."""

_SCOPES: Final = {"tool": "tool_scores", "server": "server_scores"}
_GATE: Final = re.compile(
    r"\s*(?:(?P<scope>tool|server|findings|reviewed)\.)?(?P<column>[A-Za-z][\w.-]*)"
    r"\s*(?P<beyond>[<>])\s*(?P<limit>-?\d+(?:\.\d+)?(?:e-?\d+)?)\s*(?P<percent>%?)\s*"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Gate:
    """A limit, and patterns for the servers and tools to which it applies."""

    text: str
    scope: str
    """`tool`, `server`, `findings`, `reviewed` (a rate from a reviewed sample) or `change` (a kind
    of change between two stores)."""
    column: str
    beyond: str = ">"
    limit: float = 0.0
    server: str = "*"
    tool: str = "*"

    def matches(self, server: str | None, tool: str | None) -> bool:
        """Return whether the gate applies to a tool or, if `tool` is None, to a server."""
        return fnmatch.fnmatchcase(server or "", self.server) and (
            tool is None or fnmatch.fnmatchcase(tool, self.tool)
        )

    @property
    def bound(self) -> str:
        """The limit as text, for example `limit: > 5%`."""
        is_share = SHARE.search(self.column)
        return f"limit: {self.beyond} " + (
            f"{100 * self.limit:g}%" if is_share else f"{self.limit:g}"
        )

    def state(self, low: float, high: float) -> State:
        """Return the gate's state for a value whose interval is from `low` to `high`."""
        if self.beyond == "<":
            low, high, limit = -high, -low, -self.limit
        else:
            limit = self.limit
        if low > limit:
            return "failed"
        return "passed" if high <= limit else "undecided"


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The result of checking a gate on a tool, a server or a store."""

    gate: Gate
    state: State
    server: str | None
    tool: str | None
    message: str
    file: str | None = None
    line: int | None = None

    def failed_if_undecided(self) -> "Result":
        """Return this result, with the state changed to `failed` if it is undecided."""
        if self.state != "undecided":
            return self
        return dataclasses.replace(self, state="failed", message=f"undecided: {self.message}")

    @property
    def subject(self) -> str:
        """The server and tool that the result is about, as text."""
        return "/".join(part for part in (self.server, self.tool) if part) or "the store"


def parse(text: str, *, server: str = "*", tool: str = "*") -> Gate:
    """Parse the text of a gate.

    Args:
        text: the gate.
        server: pattern for the servers to which it applies.
        tool: pattern for the tools to which it applies.

    Raises:
        UsageError: the text is not a gate.
    """
    word = text.strip()
    kind, _, metric = word.partition(".")
    if kind in RANK and (not metric or kind in ("worse", "better")):
        return Gate(word, "change", word, server=server, tool=tool)
    found = _GATE.fullmatch(text)
    if found is None:
        hint = near(word, RANK)
        raise UsageError(
            f"{text!r} is not a gate{hint}; write a column, > or <, and a number, as in "
            "'failure_rate > 5%', or a kind of change (comparisons only), as in 'worse'"
        )
    limit = float(found["limit"]) / (100 if found["percent"] else 1)
    return Gate(
        word, found["scope"] or "tool", found["column"], found["beyond"], limit, server, tool
    )


def load(texts: Iterable[str], *, comparing: bool = False) -> list[Gate]:
    """Load the gates that are given on the command line.

    Args:
        texts: gates, or paths of TOML files that contain gates.
        comparing: whether the gates apply to a comparison of two stores.

    Raises:
        UsageError: a string is not a gate, a file cannot be read, a gate names something that does
            not exist, or its limit is outside the column's range.
    """
    gates: list[Gate] = []
    for text in texts:
        gates += _load_file(Path(text)) if text.endswith(".toml") else [parse(text)]
    for gate in gates:
        if gate.scope == "reviewed":
            _check_column(gate, RATES, "the rates of reviewed samples")
        elif comparing:
            _check_comparing(gate)
        else:
            _check_names(gate)
    return gates


def _check_comparing(gate: Gate) -> None:
    """Raise an error for a gate that cannot be checked on a comparison."""
    if gate.scope == "findings":
        raise UsageError(f"{gate.text!r} is about one store; use mcptally score --fail-on")
    if gate.scope in _SCOPES:
        _check_column(gate, COMPARED, "the compared metrics")
    metric = gate.column.partition(".")[2]
    if gate.scope == "change" and metric:
        _check_column(dataclasses.replace(gate, column=metric), COMPARED, "the compared metrics")


def _check_names(gate: Gate) -> None:
    """Raise an error for a gate that cannot be checked on a single store."""
    if gate.scope == "change":
        raise UsageError(
            f"{gate.text!r} compares two stores; use mcptally compare BASE NEW --fail-on"
        )
    if gate.scope == "findings":
        names = [*get_args(Severity), *(row["id"] for row in find_rules())]
        _check_column(gate, names, "the severities and rules")
        return
    columns = answer_columns(_SCOPES[gate.scope])
    _check_column(gate, columns, f"the columns of {_SCOPES[gate.scope]}")
    if columns[gate.column] not in _NUMBERS:
        raise UsageError(f"{gate.text!r}: {gate.column} is not a number")
    highest = 1 if SHARE.search(gate.column) else 100 if _PERCENT.match(gate.column) else math.inf
    if not 0 <= gate.limit <= highest:
        raise UsageError(
            f"{gate.text!r}: {gate.column} is from 0 to {highest}"
            + (f", write {gate.column} {gate.beyond} 5% or 0.05" if highest == 1 else "")
        )


_NUMBERS: Final = frozenset({"bigint", "double", "hugeint", "integer", "ubigint", "uinteger"})
"""DuckDB types of the columns that a gate may limit."""
_PERCENT: Final = re.compile("confidence(?!_n_eff)")
"""Matches the names of columns whose values are percentages from 0 to 100."""


class _Row(msgspec.Struct, rename="kebab"):
    """A `[[gate]]` table in a limits file."""

    fail_on: str | list[str]
    server: str = "*"
    tool: str = "*"


def _load_file(path: Path) -> list[Gate]:
    return [
        parse(text, server=row.server, tool=row.tool)
        for row in user_rows(path, "gate", _Row)
        for text in ([row.fail_on] if isinstance(row.fail_on, str) else row.fail_on)
    ]


def check_store(store: Store, gates: Sequence[Gate]) -> list[Result]:
    """Check gates on a store; if several gates on a column match, only the last of them applies."""
    results: list[Result] = []
    for scope, question in _SCOPES.items():
        if mine := [gate for gate in gates if gate.scope == scope]:
            rows = store.ask(question).to_arrow_table().to_pylist()
            sessions = _sessions(store, scope)
            results += [
                result
                for row in rows
                for gate in _last_matching(mine, row)
                if (result := _check_row(gate, row, sessions))
            ]
    results += [_check_findings(store, gate) for gate in gates if gate.scope == "findings"]
    return _with_places(store, results)


def _sessions(store: Store, scope: str) -> dict[tuple[str | None, str | None, str], int]:
    """Map each (server, tool, rate) to the number of sessions with calls that the rate counts."""
    rows = store.sql(f"SELECT server, tool, metric, sessions FROM _rates_per('{scope}')").fetchall()
    return {(server, tool, metric): sessions for server, tool, metric, sessions in rows}


def check_changes(
    comparison: Comparison, gates: Sequence[Gate], stores: Sequence[Store] = ()
) -> list[Result]:
    """Check gates on a comparison.

    A gate limits the change in a metric: the difference for rates, the ratio for other metrics. The
    gate fails if the whole interval is beyond the limit and the q-value shows that the change is
    significant.

    Args:
        comparison: the changes between two stores.
        gates: gates loaded with `comparing=True`.
        stores: the new store, then the base; a failure cites a call from the first of these stores
            that contains such a call.
    """
    tools = comparison.tools.to_arrow_table().to_pylist()
    metrics = comparison.metrics.to_arrow_table().to_pylist()
    results: list[Result] = []
    for gate in (gate for gate in gates if gate.scope == "change"):
        kind, _, metric = gate.column.partition(".")
        for row in tools:
            if not gate.matches(row["server"], row["tool"]):
                continue
            hit = metric in row[kind] if metric else _has_change(kind, row)
            state: State = "failed" if hit else "passed"
            results.append(Result(gate, state, row["server"], row["tool"], row["words"]))
    limits = [gate for gate in gates if gate.scope != "change"]
    for scope in _SCOPES:
        mine = [gate for gate in limits if gate.scope == scope]
        for row in metrics:
            if row["level"] != scope:
                continue
            fitting = _last_matching([gate for gate in mine if gate.column == row["metric"]], row)
            results += [_check_change(gate, row) for gate in fitting]
    for store in stores:
        results = _with_places(store, results)
    return results


def _has_change(kind: str, row: Mapping[str, Any]) -> bool:
    if kind == "definition_changed":
        return bool(row["definition_changed"])
    return row["change"] == kind or (kind in ("worse", "better") and bool(row[kind]))


def _check_column(gate: Gate, columns: Iterable[str], where: str) -> None:
    columns = list(columns)
    if gate.column not in columns:
        raise UsageError(
            f"{gate.text!r}: {gate.column} is not among {where}{near(gate.column, columns)}"
        )


def _last_matching(gates: Iterable[Gate], row: Mapping[str, Any]) -> Iterable[Gate]:
    """Return, for each column and direction (`>` or `<`), the last gate that matches the row."""
    fitting = {
        (gate.column, gate.beyond): gate
        for gate in gates
        if gate.matches(row["server"], row.get("tool"))
    }
    return fitting.values()


def _check_row(
    gate: Gate, row: Mapping[str, Any], sessions: Mapping[tuple[str | None, str | None, str], int]
) -> Result | None:
    """Check a gate on the row of a tool or server.

    Returns None if the column is null, except for a null confidence, which is undecided: a gate
    must not pass silently if no call shows whether the tool works.
    """
    server, tool, value = row["server"], row.get("tool"), row[gate.column]
    if value is None and gate.column in _CONFIDENCES:
        calls = f"{count_of(row['calls'], 'call')}, of which {row['ok']:,} worked"
        message = f"{gate.column}: no evidence in {calls}; {gate.bound}"
        return Result(gate, "undecided", server, tool, message)
    if value is None:
        return None
    state, span = gate.state(value, value), ""
    ends = [f"{gate.column}_{end}" for end in ("low", "high")]
    counted = sessions.get((server, tool, _RATES.get(gate.column, gate.column)), row["sessions"])
    if ends[0] in row:
        low, high = (row[end] for end in ends)
        known = low is not None and high is not None
        interval = f" ({cell(gate.column, low)} to {cell(gate.column, high)})"
        span = interval if known else ", too little data for an interval"
        if not known:
            state = "undecided"
        elif counted < MIN_SESSIONS:
            state, span = "undecided", f"{span}, fewer than {MIN_SESSIONS} sessions"
        else:
            state = gate.state(low, high)
    message = (
        f"{gate.column} is {cell(gate.column, value)}{span} on {count_of(row['calls'], 'call')} in "
        f"{count_of(counted, 'session')}; {gate.bound}"
    )
    return Result(gate, state, server, tool, message)


_RATES: Final = {"confidence_shrunk": "confidence", "confidence_tool_mean": "confidence"}
"""Maps each column that is derived from a rate to that rate."""


_CONFIDENCES: Final = frozenset({"confidence", "confidence_shrunk", "confidence_tool_mean"})


def _check_change(gate: Gate, row: Mapping[str, Any]) -> Result:
    low, high = row["change_low"], row["change_high"]
    state: State = "undecided"
    if low is not None and high is not None:
        state = gate.state(low, high)
        if state == "failed" and row["verdict"] not in ("worse", "better"):
            state = "undecided"  # among many changes, some exceed a limit by chance
    shown = points if SHARE.search(gate.column) else "{:.3g}".format
    span = "" if low is None or high is None else f" ({shown(low)} to {shown(high)})"
    q = "" if row["q_value"] is None else f", q {row['q_value']:.3f}"
    change = "none" if row["change"] is None else shown(row["change"])
    message = f"{row['metric']} {row['scale']} {change}{span}{q}; {gate.bound}"
    return Result(gate, state, row["server"], row["tool"], message)


def points(change: float) -> str:
    """Format the change in a share as percentage points."""
    return f"{100 * change:+.1f} points"


def _check_findings(store: Store, gate: Gate) -> Result:
    """Check a gate on the number of findings with a certain severity or rule.

    Only findings about servers and tools that the gate matches are counted.
    """
    rows = store.sql(
        "SELECT server, tool, count(*), min((file, line)) FROM findings "
        "WHERE severity = $1 OR rule = $1 GROUP BY server, tool",
        [gate.column],
    ).fetchall()
    fitting = [row for row in rows if gate.matches(row[0], row[1] or "")]
    count = sum(n for _, _, n, _ in fitting)
    places = [place for *_, place in fitting if None not in place]
    file, line = min(places, default=(None, None))
    message = f"{count_of(count, 'finding')} of {gate.column}; {gate.bound}"
    return Result(gate, gate.state(count, count), None, None, message, file, line)


def _with_places(store: Store, results: Sequence[Result]) -> list[Result]:
    """Add the file and line of an example to each failed result, if there is one."""
    return [
        _with_place(store, result) if result.state == "failed" and result.file is None else result
        for result in results
    ]


def _with_place(store: Store, result: Result) -> Result:
    """Add the file and line of the first tool failure, or else of the first call, to a result."""
    rows = store.sql(
        "SELECT file, line FROM calls WHERE ($1 IS NULL OR server = $1) "
        "AND ($2 IS NULL OR tool = $2) "
        "AND method = 'tools/call' "
        "ORDER BY verdict IS DISTINCT FROM $3, outcome = 'ok', requested_at LIMIT 1",
        [result.server, result.tool, Verdict.TOOL_FAILURE],
    ).fetchall()
    if not rows:
        return result
    return dataclasses.replace(result, file=rows[0][0], line=rows[0][1])
