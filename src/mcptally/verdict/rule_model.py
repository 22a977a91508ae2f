"""Declares the rules about reply texts, and applies a user's changes to them.

Patterns are regular expressions for the Rust `regex` crate (no look-around) and ignore case. Rules
are data: to change a verdict, change one row.
"""

import functools
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import polars as pl

from mcptally import rules
from mcptally.errors import RuleError, near
from mcptally.tables.outcomes import FAULTS, UNKNOWN, Verdict
from mcptally.toml_files import read_toml
from mcptally.verdict import tool_kinds

_DESCRIPTIVE: Final = frozenset(
    {"id", "title", "source", "note", "order", "kept_for", "fires", "silent"}
)
"""Fields that can change without invalidating a rule's measured counts."""

_BESIDE_TEXT: Final = (
    *("tool", "arguments", "arguments_unless", "codes", "statuses", "schema", "end", "quotes"),
    *("outage", "names_argument", "stack_trace", "tool_record", "peer_record", "tool_kind"),
    *("offered", "in_code", "foreign_field", "lacks_argument", "own_default", "time_limit"),
    *("fast", "denied_before", "works_otherwise", "asks_upstream"),
)
"""Fields of rules about failures that test facts outside the text."""

PLACES: Final = ("anywhere", "start", "first_line")
QUOTES: Final = ("caller", "server", "component")
RECORDS: Final = ("never", "seldom", "mostly", "always")
STACK_TRACES: Final = ("masked", "repeated")
RETRYABLE: Final = ("yes", "after_delay", "after_change", "no")
KEPT_FOR: Final = ("product", "specification", "language", "mistakes", "context", "fit")
_STATUS: Final = re.compile(r"[0-9]{3}(?:-[0-9]{3})?")


class TextRule(rules.Rule, frozen=True, kw_only=True):
    """A condition on a reply's text and on facts about its call."""

    order: int
    """Precedence among matching rules, lowest first. For a rule about failures, `order` also
    determines the tier (`weighing.TIERS`)."""
    matches: tuple[str, ...] = ()
    """One of these patterns must match; if empty, the rule does not test the text."""
    keywords: tuple[tuple[str, ...], ...] = ()
    """For each pattern in `matches`, lower-case words; every matching text contains at least one
    of them. Only texts with such a word are searched; for a pattern without words, all texts are
    searched."""
    words: str = ""
    """A word class in verdict/languages.toml, whose words in all languages are added to
    `matches`."""
    also: tuple[str, ...] = ()
    """If given, one of these patterns must also match."""
    unless: tuple[str, ...] = ()
    """None of these patterns may match."""
    where: str = "anywhere"
    """Where `matches` apply: `anywhere`, at the `start` (after wrappers such as "Error executing
    tool x:"), or to the `first_line`."""
    tool: str = ""
    """A pattern that the tool's name must match."""
    tool_kind: tuple[str, ...] = ()
    """Kinds of the tool (`tool_kinds.KINDS`)."""
    arguments: str = ""
    """A pattern that the JSON text of the arguments must match."""
    hits: float = 0
    """Number of labelled calls that the rule decided (rules/measured.json)."""
    right: float = 0
    """Number of the rule's decisions that agreed with the label."""
    disabled: bool = False
    """Whether a user's file removes the rule with this id."""

    def __post_init__(self) -> None:
        """Check `where`, `keywords` and the measured counts."""
        _check_choice(self, "where", self.where, PLACES)
        for kind in self.tool_kind:
            _check_choice(self, "tool_kind", kind, tool_kinds.KINDS)
        if self.keywords and len(self.keywords) != len(self.matches):
            raise RuleError(f"rule {self.id}: keywords needs one list of words for each of matches")
        for word in itertools.chain.from_iterable(self.keywords):
            if not word or word != word.lower():
                raise RuleError(f"rule {self.id}: keyword {word!r} must be in lower case")
        if not 0 <= self.right <= self.hits < math.inf:
            raise RuleError(
                f"rule {self.id}: right {self.right:g} must be between 0 and hits {self.hits:g}: "
                "hits counts the rule's decisions, right those that agree with the label"
            )


class VerdictRule(TextRule, frozen=True, kw_only=True):
    """A rule about failed calls; a match is evidence for a verdict."""

    verdict: str
    reason: str
    fault: str = ""
    """The party at fault, or `unknown`; if empty, the party in `tables.outcomes.REASONS`."""
    retryable: str = ""
    outcomes: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    """JSON-RPC error codes."""
    statuses: tuple[str, ...] = ()
    """HTTP statuses of the reply, or in the text next to a word such as "status".

    Each is a single status ("404") or a range ("500-599")."""
    schema: tuple[str, ...] = ()
    """Values of `input_schema_state`: the result of validating the arguments."""
    end: tuple[str, ...] = ()
    """How the recording ended: `crashed`, `killed`, `exited`, `closed`, `unknown`."""
    quotes: str = ""
    """Origin of the object that the text names: `caller` if the arguments name it, else `server`
    (`named_object.source`). The object is the first quoted word, else a path; `component` means
    that the text has neither a quoted word nor a path, but names a component of the server that the
    call does not mention. Rules with `quotes` never match texts without an object, or calls with
    unknown arguments."""
    arguments_unless: str = ""
    """A pattern that the JSON text of the arguments must not match. A rule with this field never
    matches calls with unknown arguments."""
    outage: float = 0
    """Minimum share of the server's other calls that failed at that time."""
    names_argument: bool = False
    """Only match texts that contain an argument value (`facts.ARGUMENT_VALUE`)."""
    stack_trace: str = ""
    """Only match calls during which the server wrote a stack trace to stderr, and whose text masks
    the exception (`masked`) or has its message (`repeated`)."""
    tool_record: tuple[str, ...] = ()
    """How often the tool returns a result in the archive: `never`, `seldom`, `mostly`, `always`."""
    peer_record: tuple[str, ...] = ()
    """How often the server's other tools return a result; values as in `tool_record`."""
    offered: bool = False
    """Only match texts about a missing program that the tool's schema offers
    (`whose_words.offered`)."""
    in_code: bool = False
    """Only match texts about a name in the caller's program (`whose_words.in_code`)."""
    foreign_field: bool = False
    """Only match validator texts about a field that is in neither the arguments nor the schema
    (`whose_words.foreign_field`)."""
    lacks_argument: bool = False
    """Only match texts that ask for an argument that is in the schema but missing from the call
    (`whose_words.lacks_argument`)."""
    own_default: bool = False
    """Only match texts that reject an argument that is missing from the call and has a default
    (`whose_words.own_default`)."""
    time_limit: bool = False
    """Only match calls that took slightly longer than a common limit (`facts.TIME_LIMITS`)."""
    fast: bool = False
    """Only match calls that were answered within `facts.FAST_MS`."""
    denied_before: bool = False
    """Only match texts about a file in the arguments to which the server was denied access earlier
    (`evidence.add_file_facts`)."""
    works_otherwise: bool = False
    """Only match texts about a damaged file with which other calls work."""
    asks_upstream: bool = False
    """Only match texts about undecodable data if another call to the tool in the recording failed
    with an HTTP status or a broken connection."""
    overrules: bool = False
    """Whether rules about the text with a higher `order` are not weighed, because this rule
    identifies the origin of the text."""
    decides: bool = False
    """Whether the rule decides alone if it is the first match."""
    kept_for: str = ""
    """Why the rule exists although no verdict on a labelled call needs it.

    The rule covers texts of a `product`, library or runtime; a text defined by a `specification`; a
    `language` with few or no labels; a known class of `mistakes`; or the `context` of calls, which
    most labels lack. `fit` means that the model is worse without the rule.
    """

    @property
    def tests_more_than_text(self) -> bool:
        """Whether the condition tests more than the text and the outcome."""
        return any(getattr(self, name) for name in _BESIDE_TEXT)

    def __post_init__(self) -> None:
        """Check that each field has a value that its column in the tables allows."""
        super().__post_init__()
        _check_choice(self, "verdict", self.verdict, tuple(Verdict))
        _check_choice(self, "fault", self.fault, ("", *FAULTS, UNKNOWN))
        _check_choice(self, "retryable", self.retryable, ("", *RETRYABLE))
        _check_choice(self, "quotes", self.quotes, ("", *QUOTES))
        _check_choice(self, "kept_for", self.kept_for, ("", *KEPT_FOR))
        _check_choice(self, "stack_trace", self.stack_trace, ("", *STACK_TRACES))
        for name, allowed in (
            ("tool_record", RECORDS),
            ("peer_record", RECORDS),
        ):
            for each in getattr(self, name):
                _check_choice(self, name, each, allowed)
        for status in self.statuses:
            if not _STATUS.fullmatch(status):
                raise RuleError(
                    f"rule {self.id}: statuses {status!r} must be a status or a range, "
                    "such as 404 or 500-599"
                )


class HiddenRule(TextRule, frozen=True, kw_only=True):
    """A rule that decides whether a result that is not marked as an error reports a failure."""

    failure: bool = True
    """False if the text only looks like a failure (for example, the content of a log file)."""
    view: str = "text"
    """`text`, or `json` for the lines `path = value` of a JSON text or of structuredContent."""
    lines: int = 0
    """Maximum number of lines in the text; 0 means no limit."""
    chars: int = 0
    """Maximum number of characters in the text; 0 means no limit."""
    unusual: bool = False
    """Only match if the text is prose and nearly all of the tool's results are JSON."""
    unless_kind: tuple[str, ...] = ()
    """Kinds of tools that the rule must not match."""
    echo: bool = False
    """Only match if the arguments contain the text."""

    def __post_init__(self) -> None:
        """Check `view` and the size limits."""
        super().__post_init__()
        _check_choice(self, "view", self.view, ("text", "json"))
        for kind in self.unless_kind:
            _check_choice(self, "unless_kind", kind, tool_kinds.KINDS)
        for name, limit in (("lines", self.lines), ("chars", self.chars)):
            if not 0 <= limit < 1 << 32:
                raise RuleError(
                    f"rule {self.id}: {name} {limit} must be from 0 (no limit) to {(1 << 32) - 1}"
                )


R = TypeVar("R", bound=TextRule)


def shipped_rules(cls: type[R], *files: str) -> tuple[R, ...]:
    """Return the rules of the package's TOML files with their measured counts, in order.

    Raises:
        RuleError: a row is invalid (`rules.load`).
    """
    measured = rules.measured()
    rows = rules.load(cls, *files)
    return in_order(
        with_words(
            msgspec.structs.replace(row, hits=counts["hits"], right=counts["right"])
            if (counts := measured.get(row.id))
            else row
        )
        for row in rows
    )


class _Words(msgspec.Struct, frozen=True):
    """A class of words in verdict/languages.toml, with one pattern per language."""

    patterns: tuple[str, ...]
    keywords: tuple[tuple[str, ...], ...]


@functools.cache
def words_of_languages() -> Mapping[str, _Words]:
    """Return the classes of words in verdict/languages.toml."""
    classes: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for language in read_toml("verdict/languages.toml").values():
        keywords = language.pop("keywords", {})
        for name, words in language.items():
            classes.setdefault(name, []).append(("|".join(words), tuple(keywords.get(name, ()))))
    return {name: _Words(*zip(*each, strict=True)) for name, each in classes.items()}


def with_words(rule: R) -> R:
    """Return the rule with the patterns of its word class.

    Raises:
        RuleError: the class does not exist.
    """
    if not rule.words:
        return rule
    words = words_of_languages().get(rule.words)
    if words is None:
        raise RuleError(
            f"rule {rule.id}: words {rule.words!r} is not one of "
            f"{', '.join(words_of_languages())}{near(rule.words, words_of_languages())}"
        )
    keywords = (*(rule.keywords or [()] * len(rule.matches)), *words.keywords)
    return msgspec.structs.replace(
        rule, matches=(*rule.matches, *words.patterns), keywords=keywords
    )


def in_order(rows: Iterable[R]) -> tuple[R, ...]:
    """Return the enabled rules, in order of precedence."""
    return tuple(sorted((row for row in rows if not row.disabled), key=lambda row: row.order))


def apply(base: Sequence[R], rows: Iterable[Mapping[str, Any]], *, where: str) -> tuple[R, ...]:
    """Return `base` with a user's rows applied.

    A row with a known id changes the fields that it contains; a row with a new id adds a rule. A
    rule whose condition or verdict changes loses its measured counts, which no longer apply.
    Changed and new rules decide alone (`VerdictRule.decides`) unless the row states otherwise.

    Args:
        base: the shipped rules.
        rows: the rows, each with an id (`parse_changes`).
        where: the file's name, for error messages.

    Raises:
        RuleError: a row is incomplete, has an unknown field or an invalid pattern, disables a rule
            that does not exist, or has the id of another row.
    """
    cls = type(base[0])
    shipped = {rule.id: rule for rule in base}
    changed: dict[str, R] = {}
    for row in rows:
        name = row["id"]
        known = shipped.get(name)
        if name in changed:
            raise RuleError(f"{where}: rule {name}: two rows have this id; use one row")
        if known is None and row.get("disabled"):
            raise RuleError(
                f"{where}: rule {name}: cannot disable a rule that does not exist"
                f"{near(name, shipped)}"
            )
        old = {} if known is None else msgspec.structs.asdict(known)
        if known is not None and row.keys() - _DESCRIPTIVE:
            old |= {"hits": 0, "right": 0}
        if row.keys() & {"matches", "words"}:
            old["keywords"] = ()
        if cls is VerdictRule and row.keys() - _DESCRIPTIVE:
            old["decides"] = True
        (rule,) = rules.parse(cls, {"rule": [{**old, **row}]}, where=where)
        try:
            rule = with_words(rule)
            check_patterns(rule)
        except RuleError as error:
            raise RuleError(f"{where}: {error}") from error
        changed[name] = rule
    return in_order((shipped | changed).values())


def parse_changes(text: str, where: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of a user's rules about failures, and the rows about hidden errors.

    A row whose id begins with `hidden.` is about hidden errors.

    Args:
        text: TOML.
        where: name of the file, for messages.

    Raises:
        RuleError: the text is not TOML, or contains something other than `[[rule]]` tables with
            ids.
    """
    import tomllib  # noqa: PLC0415  (for a user's file only)

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RuleError(f"{where}: is not TOML: {error}") from error
    for key in table.keys() - {"rule"}:
        raise RuleError(f"{where}: unknown table {key!r}; write each rule as a [[rule]] table")
    rows = table.get("rule", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RuleError(f"{where}: 'rule' is not a list of tables; write each rule as [[rule]]")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row.get("id"), str):
            raise RuleError(f"{where}: rule number {number} has no id")
    hidden = [row for row in rows if row["id"].startswith("hidden.")]
    return [row for row in rows if row not in hidden], hidden


def status_in(statuses: Sequence[str]) -> pl.Expr:
    """Return an expression: true if `status` is in `statuses`, which may contain ranges."""
    ranges = [each.partition("-") for each in statuses]
    return pl.any_horizontal(
        pl.col("status").is_between(int(low), int(high or low)) for low, _, high in ranges
    )


def _check_choice(rule: TextRule, field: str, value: str, allowed: Sequence[str]) -> None:
    """Raise RuleError if `value` is not allowed in `field`."""
    if value not in allowed:
        raise RuleError(
            f"rule {rule.id}: {field} {value!r} is not one of {', '.join(filter(None, allowed))}"
            f"{near(value, allowed)}"
        )


def check_patterns(rule: TextRule) -> None:
    """Compile all patterns of a user's rule. Tests check the shipped rules.

    Raises:
        RuleError: a pattern is not a valid regular expression.
    """
    probe = pl.Series([""])
    patterns = [*rule.matches, *rule.also, *rule.unless, rule.tool, rule.arguments]
    if isinstance(rule, VerdictRule):
        patterns.append(rule.arguments_unless)
    for pattern in patterns:
        try:
            probe.str.contains(pattern)
        except pl.exceptions.ComputeError as error:
            detail = str(error).partition("\n\n")[0]
            raise RuleError(f"rule {rule.id}: invalid pattern {pattern!r}: {detail}") from error
