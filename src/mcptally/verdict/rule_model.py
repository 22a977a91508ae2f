"""What a rule about the text of a reply says, and how a user's file changes the rules.

Conditions are regular expressions of the Rust `regex` crate (no look-around), letter case
ignored; they are data, so whoever disagrees with a verdict changes one row.
"""

import dataclasses
import enum
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import polars as pl

from mcptally import rules
from mcptally.errors import RuleError, near


class Verdict(enum.StrEnum):
    """Whose failure it is."""

    BUSINESS = "business"
    """The tool did its job and rejected this request."""
    TOOL_FAILURE = "tool_failure"
    """Nobody can mend it by changing the request."""
    INFRASTRUCTURE = "infrastructure"
    """Network, time-out, an upstream or a dependency that is down."""
    AMBIGUOUS = "ambiguous"
    """The text hides the cause."""


_HARMLESS: Final = frozenset({"id", "title", "source", "note", "order", "fires", "silent"})
"""What a row may say without becoming another rule."""

PLACES: Final = ("anywhere", "start", "first_line")
FAULTS: Final = ("agent", "user", "server", "upstream", "transport")
QUOTES: Final = ("caller", "server")
RETRYABLE: Final = ("yes", "after_delay", "after_change", "no")
_STATUS: Final = re.compile(r"[0-9]{3}(?:-[0-9]{3})?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRule(rules.Rule):
    """A condition on the text of a reply and on what surrounds it."""

    order: int
    """The lowest order that holds decides."""
    matches: tuple[str, ...] = ()
    """One of these patterns must match. None at all: the text does not matter."""
    also: tuple[str, ...] = ()
    """If given, one of these must match as well."""
    unless: tuple[str, ...] = ()
    """None of these may match."""
    where: str = "anywhere"
    """`anywhere`, `start` (after wrappers like "Error executing tool x:"), or `first_line`."""
    tool: str = ""
    """A pattern that the tool's name must match."""
    arguments: str = ""
    """A pattern that the JSON text of the arguments must match."""
    hits: float = 0
    """How often the rule decided on labelled calls."""
    right: float = 0
    """How often its decision was the label."""
    disabled: bool = False
    """Only in a user's file: takes the rule of this id out."""

    def __post_init__(self) -> None:
        """Refuse a place that there is not, and counts that cannot be."""
        _one_of(self, "where", self.where, PLACES)
        if not 0 <= self.right <= self.hits < math.inf:
            raise RuleError(
                f"rule {self.id}: right {self.right:g} of hits {self.hits:g} cannot be: of how "
                "often it decided, how often that was the label"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerdictRule(TextRule):
    """A reason to say whose failure it is."""

    verdict: str
    reason: str
    fault: str = ""
    retryable: str = ""
    outcomes: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    """JSON-RPC error codes."""
    statuses: tuple[str, ...] = ()
    """HTTP statuses, of the reply or written near a status word: "404", "500-599"."""
    schema: tuple[str, ...] = ()
    """States of the arguments against the tool's input schema."""
    end: tuple[str, ...] = ()
    """How the recording ended: `crashed`, `killed`, `exited`, `closed`, `unknown`."""
    quotes: str = ""
    """Whose the first quoted word of the text is: `caller` if it is among the arguments, else
    `server`. Neither if there is no such word, or the arguments are not known."""
    outage: float = 0
    """At least this share of the server's other calls failed at that time."""

    def __post_init__(self) -> None:
        """Refuse values that no column knows."""
        super().__post_init__()
        _one_of(self, "verdict", self.verdict, tuple(Verdict))
        _one_of(self, "fault", self.fault, ("", *FAULTS))
        _one_of(self, "retryable", self.retryable, ("", *RETRYABLE))
        _one_of(self, "quotes", self.quotes, ("", *QUOTES))
        for status in self.statuses:
            if not _STATUS.fullmatch(status):
                raise RuleError(f"rule {self.id}: statuses {status!r} is none, as 404 or 500-599")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HiddenRule(TextRule):
    """A reason to say that a result not marked as an error reports a failure, or does not."""

    failure: bool = True
    """False: what looks like a failure is none (a file that was read, a validator's answer)."""
    view: str = "text"
    """`text`, or `json`: the lines `path = value` of a JSON text or of structuredContent."""
    lines: int = 0
    """If given, the text has at most so many lines."""
    chars: int = 0
    """If given, the text has at most so many characters."""
    unusual: bool = False
    """Only where the text is prose and nearly all results of this tool are JSON."""
    echo: bool = False
    """Only where the text is among the arguments."""

    def __post_init__(self) -> None:
        """Refuse values that no view knows."""
        super().__post_init__()
        _one_of(self, "view", self.view, ("text", "json"))
        for name, limit in (("lines", self.lines), ("chars", self.chars)):
            if not 0 <= limit < 1 << 32:
                raise RuleError(f"rule {self.id}: {name} {limit} cannot be; 0 is for any number")


R = TypeVar("R", bound=TextRule)


def in_order(rows: Iterable[R]) -> tuple[R, ...]:
    """Rules in the order in which they decide, without the disabled ones."""
    return tuple(sorted((row for row in rows if not row.disabled), key=lambda row: row.order))


def apply(base: Sequence[R], rows: Iterable[Mapping[str, Any]], *, where: str) -> tuple[R, ...]:
    """`base` with a user's rows: what a row says replaces that of its id; a new id is a new rule.

    A row whose condition or verdict changes loses the measured counts: they were another rule's.

    Args:
        base: the rules that come with mcptally.
        rows: the rows, each with an id (`read_changes`).
        where: names the file in errors.

    Raises:
        RuleError: a row is incomplete, says something unknown or what is no pattern, takes out a
            rule that is none, or has the id of another row.
    """
    cls = type(base[0])
    shipped = {rule.id: rule for rule in base}
    changed: dict[str, R] = {}
    for row in rows:
        name = row["id"]
        known = shipped.get(name)
        if name in changed:
            raise RuleError(f"{where}: rule {name}: is here twice; say it in one row")
        if known is None and row.get("disabled"):
            raise RuleError(f"{where}: rule {name}: there is none to disable{near(name, shipped)}")
        old = {} if known is None else dataclasses.asdict(known)
        if known is not None and row.keys() - _HARMLESS:
            old |= {"hits": 0, "right": 0}
        (rule,) = rules.parse(cls, {"rule": [{**old, **row}]}, where=where)
        try:
            check_patterns(rule)
        except RuleError as error:
            raise RuleError(f"{where}: {error}") from error
        changed[name] = rule
    return in_order((shipped | changed).values())


def read_changes(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of a user's rule file: those about failures, and those about hidden errors.

    A row is about hidden errors when its id begins with `hidden.`.

    Raises:
        RuleError: the file is not readable TOML, or has something else than `[[rule]]` tables.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RuleError(f"{path}: cannot be read as a rule file: {error}") from error
    for key in table.keys() - {"rule"}:
        raise RuleError(f"{path}: unknown table {key!r}; rules are [[rule]] tables")
    rows = table.get("rule", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RuleError(f"{path}: rules are [[rule]] tables")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row.get("id"), str):
            raise RuleError(f"{path}: rule number {number} has no id")
    hidden = [row for row in rows if row["id"].startswith("hidden.")]
    return [row for row in rows if row not in hidden], hidden


def status_in(statuses: Sequence[str]) -> pl.Expr:
    """Whether the column `status` is one of these: "404", "500-599"."""
    ranges = [each.partition("-") for each in statuses]
    return pl.any_horizontal(
        pl.col("status").is_between(int(low), int(high or low)) for low, _, high in ranges
    )


def _one_of(rule: TextRule, field: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise RuleError(
            f"rule {rule.id}: {field} {value!r} is not one of {', '.join(filter(None, allowed))}"
            f"{near(value, allowed)}"
        )


def check_patterns(rule: TextRule) -> None:
    """Compile every pattern of `rule`; our own rules are checked by their tests instead.

    Raises:
        RuleError: a pattern is no regular expression.
    """
    probe = pl.Series([""])
    for pattern in (*rule.matches, *rule.also, *rule.unless, rule.tool, rule.arguments):
        try:
            probe.str.contains(pattern)
        except pl.exceptions.ComputeError as error:
            words = str(error).partition("\n\n")[0]
            raise RuleError(f"rule {rule.id}: pattern {pattern!r}: {words}") from error
