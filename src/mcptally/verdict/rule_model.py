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
"""Fields that may change without making a rule's measured counts invalid."""

_BESIDE_TEXT: Final = (
    *("tool", "arguments", "arguments_unless", "codes", "statuses", "schema", "end", "quotes"),
    *("outage", "names_argument", "stack_trace", "tool_record", "peer_record", "tool_kind"),
    *("offered", "in_code", "foreign_field", "lacks_argument", "own_default", "time_limit"),
    *("fast", "denied_before", "works_otherwise", "asks_upstream", "client_lacks"),
)
"""Fields of rules about failures that test facts other than the text."""

_RECORDS: Final = ("never", "seldom", "mostly", "always")
_CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "where": ("anywhere", "start", "first_line"),
    "tool_kind": tool_kinds.KINDS,
    "verdict": tuple(Verdict),
    "fault": ("", *FAULTS, UNKNOWN),
    "retryable": ("", "yes", "after_delay", "after_change", "no"),
    "quotes": ("", "caller", "server", "component"),
    "stack_trace": ("", "masked", "repeated"),
    "tool_record": _RECORDS,
    "peer_record": _RECORDS,
    "kept_for": ("", "product", "specification", "language", "mistakes", "context", "fit"),
    "view": ("text", "json"),
    "unless_kind": tool_kinds.KINDS,
}
"""Maps fields to the values that they may have or, if the field is a list, contain."""
_STATUS: Final = re.compile(r"[0-9]{3}(?:-[0-9]{3})?")


class TextRule(rules.Rule, frozen=True, kw_only=True):
    """A condition on the text of a reply and on facts about its call."""

    order: int
    """Precedence among matching rules, lowest first. For a rule about failures, `order` also
    determines the tier (`weighing.TIERS`)."""
    matches: tuple[str, ...] = ()
    """Patterns, one of which must match; if empty, the rule does not test the text."""
    keywords: tuple[tuple[str, ...], ...] = ()
    """For each pattern in `matches`, lower-case words, at least one of which occurs in every
    matching text. Only texts with such a word are searched; for a pattern without words, all texts
    are searched."""
    words: str = ""
    """Name of a word class in verdict/languages.toml, whose words in all languages are added to
    `matches`."""
    also: tuple[str, ...] = ()
    """Patterns, one of which must match too; if empty, there is no such condition."""
    unless: tuple[str, ...] = ()
    """Patterns, none of which may match."""
    where: str = "anywhere"
    """Which part of the text `matches` must match: `anywhere`, at the `start` (after wrappers such
    as "Error executing tool x:"), or the `first_line`."""
    tool: str = ""
    """Pattern that the tool's name must match."""
    tool_kind: tuple[str, ...] = ()
    """Kinds of tools (`tool_kinds.KINDS`), one of which the tool must have."""
    arguments: str = ""
    """Pattern that the JSON text of the arguments must match."""
    hits: float = 0
    """Number of labelled calls on which the rule decided (rules/measured.json)."""
    right: float = 0
    """Number of these decisions that agreed with the label."""
    disabled: bool = False
    """Whether a user's file disables the rule with this id."""

    def __post_init__(self) -> None:
        """Check the fields in `_CHOICES`, `keywords` and the measured counts."""
        for field, allowed in _CHOICES.items():
            given = getattr(self, field, ())
            for value in [given] if isinstance(given, str) else given:
                if value not in allowed:
                    raise RuleError(
                        f"rule {self.id}: {field} {value!r} is not one of "
                        f"{', '.join(filter(None, allowed))}{near(value, allowed)}"
                    )
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
    """The party at fault, or `unknown`; if empty, the reason's party in `tables.outcomes.REASONS`.
    """
    retryable: str = ""
    outcomes: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    """JSON-RPC error codes, one of which the call must have."""
    statuses: tuple[str, ...] = ()
    """HTTP statuses, one of which the reply must have, or its text next to a word such as "status".
    Each is a single status ("404") or a range ("500-599")."""
    schema: tuple[str, ...] = ()
    """Values of `input_schema_state`, the result of validating the arguments."""
    end: tuple[str, ...] = ()
    """How the recording ended: `crashed`, `killed`, `exited`, `closed` or `unknown`."""
    quotes: str = ""
    """Origin of the object that the text names: `caller` if the arguments name it, else `server`
    (`named_object.source`). The object is the first quoted word, else a path; `component` means
    that the text has neither a quoted word nor a path, but names a component of the server that the
    call does not mention. Rules with `quotes` never match texts without an object, or calls with
    unknown arguments."""
    arguments_unless: str = ""
    """Pattern that the JSON text of the arguments must not match. A rule with this field never
    matches calls with unknown arguments."""
    outage: float = 0
    """Minimum share of failures among the server's other calls at that time."""
    names_argument: bool = False
    """Only match texts that contain the value of an argument (`facts.ARGUMENT_VALUE`)."""
    stack_trace: str = ""
    """Only match calls during which the server wrote a stack trace to stderr, and whose text hides
    the exception (`masked`) or repeats its message (`repeated`)."""
    tool_record: tuple[str, ...] = ()
    """How often the tool returns a result in the archive: `never`, `seldom`, `mostly` or `always`.
    """
    peer_record: tuple[str, ...] = ()
    """How often the server's other tools return a result, with the same values as `tool_record`."""
    offered: bool = False
    """Only match texts about a missing program that the tool's schema offers
    (`whose_words.offered`)."""
    in_code: bool = False
    """Only match texts about a name in the caller's own program (`whose_words.in_code`)."""
    foreign_field: bool = False
    """Only match texts of validators about a field that is in neither the arguments nor the schema
    (`whose_words.foreign_field`)."""
    lacks_argument: bool = False
    """Only match texts that ask for an argument that is in the schema but missing from the call
    (`whose_words.lacks_argument`)."""
    own_default: bool = False
    """Only match texts that reject an argument that is missing from the call and has a default
    (`whose_words.own_default`)."""
    time_limit: bool = False
    """Only match calls that took slightly longer than a common time limit (`facts.TIME_LIMITS`)."""
    fast: bool = False
    """Only match calls that were answered in less than `facts.FAST_MS`."""
    denied_before: bool = False
    """Only match texts about a file in the arguments to which the server was earlier denied access
    (`evidence.add_file_facts`)."""
    works_otherwise: bool = False
    """Only match texts about a damaged file, if other calls work with the file."""
    asks_upstream: bool = False
    """Only match texts about data that cannot be decoded, if another call to the tool in the
    recording failed with an HTTP status or a broken connection."""
    client_lacks: bool = False
    """Only match texts that repeat the client's answer to a request that the server made during the
    call, if the answer is that the client does not support the request."""
    overrules: bool = False
    """Whether this rule identifies the origin of the text, so that rules about the text with a
    higher `order` are not weighed."""
    decides: bool = False
    """Whether the rule decides alone if it is the first rule that matches."""
    kept_for: str = ""
    """Why the rule exists although no verdict on a labelled call depends on it.

    The rule covers texts of a `product`, library or runtime; a text defined by a `specification`; a
    `language` with few or no labels; a known class of `mistakes`; or the `context` of calls, which
    most labels lack. `fit` means that the model is worse without the rule."""

    @property
    def tests_more_than_text(self) -> bool:
        """Whether the rule's condition tests anything besides the text and the outcome."""
        return any(getattr(self, name) for name in _BESIDE_TEXT)

    def __post_init__(self) -> None:
        """Check `statuses`."""
        super().__post_init__()
        for status in self.statuses:
            if not _STATUS.fullmatch(status):
                raise RuleError(
                    f"rule {self.id}: statuses {status!r} must be a status or a range, "
                    "such as 404 or 500-599"
                )


class HiddenRule(TextRule, frozen=True, kw_only=True):
    """A rule that decides whether a result not marked as an error reports a failure."""

    failure: bool = True
    """False if the text only looks like a failure (for example, because it is the content of a log
    file)."""
    view: str = "text"
    """`text`, or `json` for the lines `path = value` of a JSON text or of structuredContent."""
    lines: int = 0
    """Maximum number of lines that the text may have; 0 means no limit."""
    chars: int = 0
    """Maximum number of characters that the text may have; 0 means no limit."""
    unusual: bool = False
    """Only match if the text is prose, although nearly all of the tool's results are JSON."""
    unless_kind: tuple[str, ...] = ()
    """Kinds of tools whose results the rule must not match."""
    echo: bool = False
    """Only match if the arguments contain the text, so that the result echoes them."""

    def __post_init__(self) -> None:
        """Check the size limits."""
        super().__post_init__()
        for name, limit in (("lines", self.lines), ("chars", self.chars)):
            if not 0 <= limit < 1 << 32:
                raise RuleError(
                    f"rule {self.id}: {name} {limit} must be from 0 (no limit) to {(1 << 32) - 1}"
                )


R = TypeVar("R", bound=TextRule)


def shipped_rules(cls: type[R], *files: str) -> tuple[R, ...]:
    """Load the rules in the package's TOML files, with their measured counts, in order.

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
    """A class of words in verdict/languages.toml, as one pattern and its keywords per language."""

    patterns: tuple[str, ...]
    keywords: tuple[tuple[str, ...], ...]


@functools.cache
def words_of_languages() -> Mapping[str, _Words]:
    """Load the word classes in verdict/languages.toml, keyed by name."""
    classes: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for language in read_toml("verdict/languages.toml").values():
        keywords = language.pop("keywords", {})
        for name, words in language.items():
            classes.setdefault(name, []).append(("|".join(words), tuple(keywords.get(name, ()))))
    return {name: _Words(*zip(*each, strict=True)) for name, each in classes.items()}


def with_words(rule: R) -> R:
    """Add the patterns of a rule's word class to the rule.

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
    """Return the rules that are not disabled, in order of precedence."""
    return tuple(sorted((row for row in rows if not row.disabled), key=lambda row: row.order))


def apply(base: Sequence[R], rows: Iterable[Mapping[str, Any]], *, where: str) -> tuple[R, ...]:
    """Apply a user's rows to the shipped rules.

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
    """Parse a user's rule file into rows about failures and rows about hidden errors.

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
    """Return an expression that is true if `status` is in `statuses`, which may contain ranges."""
    ranges = [each.partition("-") for each in statuses]
    return pl.any_horizontal(
        pl.col("status").is_between(int(low), int(high or low)) for low, _, high in ranges
    )


def check_patterns(rule: TextRule) -> None:
    """Compile all patterns of a user's rule, to find invalid ones; tests check the shipped rules.

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
