"""Gates: limits that a store or a comparison may not go beyond, and what CI reads of them.

A gate is a short text: a column, `>` or `<`, and a number (`failure_rate > 5%`); for a comparison
also a kind of change (`worse`). A gate fails only where the whole interval is beyond the limit.
Where the interval holds the limit, or this rate rests on too little data, it is undecided: each
rate by its own interval and its own data, not by those of the failure rate.
"""

import dataclasses
import fnmatch
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

from mcptally.analytics.compare import COMPARED, RANK, Comparison
from mcptally.analytics.store import Store
from mcptally.errors import UsageError, near
from mcptally.output.plural import count as count_of
from mcptally.rules.reference_page import find_rules
from mcptally.tables.findings import Severity

State = Literal["failed", "undecided", "passed"]

_SCOPES: Final = {"tool": "tool_scores", "server": "server_scores"}
_GATE: Final = re.compile(
    r"\s*(?:(?P<scope>tool|server|findings)\.)?(?P<column>[A-Za-z][\w.-]*)"
    r"\s*(?P<beyond>[<>])\s*(?P<limit>-?\d+(?:\.\d+)?(?:e-?\d+)?)\s*(?P<percent>%?)\s*"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Gate:
    """One limit, for the servers and tools that match."""

    text: str
    scope: str
    """`tool`, `server`, `findings`, or `change`: a kind of change between two stores."""
    column: str
    beyond: str = ">"
    limit: float = 0.0
    server: str = "*"
    tool: str = "*"

    def matches(self, server: str | None, tool: str | None) -> bool:
        """Whether the gate is about this tool (or, without a tool, about the server)."""
        return fnmatch.fnmatchcase(server or "", self.server) and (
            tool is None or fnmatch.fnmatchcase(tool, self.tool)
        )

    def state(self, low: float, high: float) -> State:
        """What the interval from `low` to `high` says about the limit."""
        if self.beyond == "<":
            low, high, limit = -high, -low, -self.limit
        else:
            limit = self.limit
        if low > limit:
            return "failed"
        return "passed" if high <= limit else "undecided"


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What one gate says about one tool, server or store."""

    gate: Gate
    state: State
    server: str | None
    tool: str | None
    message: str
    file: str | None = None
    line: int | None = None

    @property
    def subject(self) -> str:
        """What it is about, in one word."""
        return "/".join(part for part in (self.server, self.tool) if part) or "the store"


def parse(text: str, *, server: str = "*", tool: str = "*") -> Gate:
    """A gate from its text.

    Raises:
        UsageError: it is none.
    """
    word = text.strip()
    kind, _, metric = word.partition(".")
    if kind in RANK and (not metric or kind in ("worse", "better")):
        return Gate(word, "change", word, server=server, tool=tool)
    found = _GATE.fullmatch(text)
    if found is None:
        hint = near(word, RANK)
        raise UsageError(
            f"{text!r} is no gate{hint}; write a column, > or <, and a number, as in "
            "'failure_rate > 5%', or a kind of change (comparisons only), as in 'worse'"
        )
    limit = float(found["limit"]) / (100 if found["percent"] else 1)
    return Gate(
        word, found["scope"] or "tool", found["column"], found["beyond"], limit, server, tool
    )


def load(texts: Iterable[str]) -> list[Gate]:
    """Gates from the command line: each text is a gate, or the path of a TOML file of gates.

    Raises:
        UsageError: a text that is no gate, or a file that cannot be read.
    """
    gates: list[Gate] = []
    for text in texts:
        gates += _of_file(Path(text)) if text.endswith(".toml") else [parse(text)]
    return gates


def _of_file(path: Path) -> list[Gate]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as a file of gates: {error}") from error
    rows = table.get("gate")
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{path}: holds no gate; write tables [[gate]] with a field fail-on")
    gates = []
    for number, row in enumerate(rows, start=1):
        where = f"{path}: gate {number}"
        for key in row.keys() - {"fail-on", "server", "tool"}:
            hint = near(key, ("fail-on", "server", "tool"))
            raise UsageError(f"{where}: unknown field {key!r}{hint}")
        texts = row.get("fail-on")
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise UsageError(f"{where}: needs a field fail-on, as in fail-on = 'failure_rate > 5%'")
        names = {key: row.get(key, "*") for key in ("server", "tool")}
        if not all(isinstance(name, str) for name in names.values()):
            raise UsageError(f"{where}: server and tool are texts")
        gates += [parse(text, **names) for text in texts]
    return gates


def check(store: Store, gates: Sequence[Gate]) -> list[Result]:
    """What the gates say about one store; of gates on the same column the last that fits counts.

    Raises:
        UsageError: a gate on a column that there is not.
    """
    results: list[Result] = []
    for scope, question in _SCOPES.items():
        if mine := [gate for gate in gates if gate.scope == scope]:
            relation = store.ask(question)
            _known(mine, relation.columns, question)
            rows = relation.to_arrow_table().to_pylist()
            results += [
                result for row in rows for gate in _last(mine, row) if (result := _of(gate, row))
            ]
    if found := [gate for gate in gates if gate.scope == "findings"]:
        results += [_of_findings(store, gate) for gate in found]
    if wrong := next((gate for gate in gates if gate.scope == "change"), None):
        raise UsageError(f"{wrong.text!r} compares two stores: mcptally compare BASE NEW --fail-on")
    return [_placed(store, result) if result.state == "failed" else result for result in results]


def check_changes(comparison: Comparison, gates: Sequence[Gate]) -> list[Result]:
    """What the gates say about a comparison.

    A column is a metric and its limit the change: a difference of shares, a ratio of the others.
    It fails where the change is beyond the limit for sure, q-value included.

    Raises:
        UsageError: a gate on a metric that is not compared.
    """
    tools = comparison.tools.to_arrow_table().to_pylist()
    metrics = comparison.metrics.to_arrow_table().to_pylist()
    results: list[Result] = []
    for gate in (gate for gate in gates if gate.scope == "change"):
        kind, _, metric = gate.column.partition(".")
        for row in tools:
            if not gate.matches(row["server"], row["tool"]):
                continue
            hit = metric in row[kind] if metric else _happened(kind, row)
            state: State = "failed" if hit else "passed"
            results.append(Result(gate, state, row["server"], row["tool"], row["words"]))
    limits = [gate for gate in gates if gate.scope != "change"]
    _known(limits, COMPARED, "the metrics compared")
    for scope in _SCOPES:
        mine = [gate for gate in limits if gate.scope == scope]
        for row in metrics:
            if row["level"] != scope:
                continue
            fitting = _last([gate for gate in mine if gate.column == row["metric"]], row)
            results += [_of_change(gate, row) for gate in fitting]
    return results


def _happened(kind: str, row: Mapping[str, Any]) -> bool:
    if kind == "definition_changed":
        return bool(row["definition_changed"])
    return row["change"] == kind or (kind in ("worse", "better") and bool(row[kind]))


def _known(gates: Iterable[Gate], columns: Iterable[str], where: str) -> None:
    columns = list(columns)
    for gate in gates:
        if gate.column not in columns:
            raise UsageError(
                f"{gate.text!r}: {gate.column} is not among {where}{near(gate.column, columns)}"
            )


def _last(gates: Iterable[Gate], row: Mapping[str, Any]) -> Iterable[Gate]:
    """Of the gates that fit a row the last one for each column and direction."""
    fitting = {
        (gate.column, gate.beyond): gate
        for gate in gates
        if gate.matches(row["server"], row.get("tool"))
    }
    return fitting.values()


def _of(gate: Gate, row: Mapping[str, Any]) -> Result | None:
    """What a gate says about a tool or server; nothing where the column is empty."""
    value = row[gate.column]
    if value is None:
        return None
    if not isinstance(value, int | float):
        raise UsageError(f"{gate.text!r}: {gate.column} is no number")
    state, span = gate.state(value, value), ""
    ends = [f"{gate.column}_{end}" for end in ("low", "high")]
    if ends[0] in row:
        low, high = (row[end] for end in ends)
        known = low is not None and high is not None
        if known:
            span = f" ({low:.4g} to {high:.4g})"
        if not known or row.get(_data_column(gate.column)):
            state, span = "undecided", f"{span}, too little data"
        else:
            state = gate.state(low, high)
    return Result(
        gate,
        state,
        row["server"],
        row.get("tool"),
        f"{gate.column} is {value:.4g}{span} on {count_of(row['calls'], 'call')} in "
        f"{count_of(row['sessions'], 'session')}; limit: {gate.beyond} {gate.limit:g}",
    )


_OF_FAILURES: Final = frozenset(
    {"confidence", "failure_rate", "failure_rate_shrunk", "failure_rate_corrected"}
)
"""Columns that are the failure rate in other words: `insufficient_data` is theirs."""


def _data_column(column: str) -> str:
    """The column that says whether an estimate with an interval rests on too little data.

    Only rates have one. Latencies and means of points have no interval where data are too few.
    """
    return "insufficient_data" if column in _OF_FAILURES else f"{column}_insufficient_data"


def _of_change(gate: Gate, row: Mapping[str, Any]) -> Result:
    low, high = row["change_low"], row["change_high"]
    state: State = "undecided"
    if low is not None and high is not None:
        state = gate.state(low, high)
        if state == "failed" and row["verdict"] not in ("worse", "better"):
            state = "undecided"  # beyond the limit, but so are some of this many by chance
    span = "" if low is None or high is None else f" ({low:.3g} to {high:.3g})"
    q = "" if row["q_value"] is None else f", q {row['q_value']:.3f}"
    change = "none" if row["change"] is None else f"{row['change']:.3g}"
    message = (
        f"{row['metric']} {row['scale']} {change}{span}{q}; limit: {gate.beyond} {gate.limit:g}"
    )
    return Result(gate, state, row["server"], row["tool"], message)


def _of_findings(store: Store, gate: Gate) -> Result:
    """Findings of one severity, or of one rule, at the servers and tools that match."""
    rows = store.sql(
        "SELECT server, tool, count(*), min((file, line)) FROM findings "
        "WHERE severity = $1 OR rule = $1 GROUP BY server, tool",
        [gate.column],
    ).fetchall()
    if not rows:
        names = [*get_args(Severity), *(row["id"] for row in find_rules())]
        _known([gate], names, "the severities and rules")
    fitting = [row for row in rows if gate.matches(row[0], row[1] or "")]
    count = sum(n for _, _, n, _ in fitting)
    places = [place for *_, place in fitting if None not in place]
    file, line = min(places, default=(None, None))
    message = f"{count_of(count, 'finding')} of {gate.column}; limit: {gate.beyond} {gate.limit:g}"
    return Result(gate, gate.state(count, count), None, None, message, file, line)


def _placed(store: Store, result: Result) -> Result:
    """With the file and line of a call that shows it: the first failure, or the first call."""
    if result.file is not None or result.server is None:
        return result
    rows = store.sql(
        "SELECT file, line FROM calls WHERE server = $1 AND ($2 IS NULL OR tool = $2) "
        "AND method = 'tools/call' "
        "ORDER BY verdict IS DISTINCT FROM 'tool_failure', outcome = 'ok', requested_at LIMIT 1",
        [result.server, result.tool],
    ).fetchall()
    if not rows:
        return result
    return dataclasses.replace(result, file=rows[0][0], line=rows[0][1])
