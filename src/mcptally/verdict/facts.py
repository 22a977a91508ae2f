"""Collects the facts about failed calls that rules test."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.tables.arrow import indices, series_from_numpy
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.joins import row_mask
from mcptally.tables.outcomes import FAILED
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Definitions, Judged
from mcptally.verdict import (
    error_text,
    json_message,
    match,
    named_object,
    text_model,
    tool_kinds,
    whose_words,
)
from mcptally.verdict.rule_model import VerdictRule, status_in


class Inputs(StageTable):
    """The columns that `judge` reads; a missing column counts as null."""

    outcome = Judged.outcome
    error_text = Judged.error_text
    error_code = Judged.error_code
    http_status = Column(pl.Int32, "Status of the HTTP exchange of the request.")
    input_schema_state = Judged.input_schema_state
    tool = Judged.tool
    arguments = Judged.arguments
    exit_code = Judged.exit_code
    signal = Judged.signal
    closed = Judged.closed
    concurrent_failure_share = Judged.concurrent_failure_share
    stderr_error = Judged.stderr_error
    latency_ms = Judged.latency_ms
    tool_record = Judged.tool_record
    peer_record = Judged.peer_record
    definition = Judged.definition
    tool_kind = Judged.tool_kind
    input_schema = Definitions.input_schema
    denied_before = Column(pl.Boolean, "Whether the server was denied what the text names before.")
    works_otherwise = Column(pl.Boolean, "Whether other calls work with the file said damaged.")
    asks_upstream = Column(pl.Boolean, "Whether undecodable data is a service's reply.")
    client_lacks = Column(pl.Boolean, "Whether the text repeats that the client lacks a method.")


class _Facts(Inputs):
    """One row per failed call, with the facts that rules test."""

    row = Column(pl.UInt32, "Number of the call.")
    text = Column(pl.UInt32, "Number of its distinct text.")
    stripped = Column(pl.String, "The text without wrappers.")
    named_tool = Column(pl.String, "The tool's name, where the text contains it.")
    line = Column(pl.String, "The first informative line of the text.")
    stack_trace = Column(pl.String, "Whose stack trace the text has.")
    value = Column(pl.String, "A value of the arguments.")
    outage = Column(pl.Float64, "`concurrent_failure_share`, rounded down to tenths.")
    kind = Column(pl.UInt32, "Number of the distinct combination of facts.")


_WORDS: Final = {
    "offered": whose_words.offered,
    "in_code": whose_words.in_code,
    "foreign_field": whose_words.foreign_field,
    "lacks_argument": whose_words.lacks_argument,
    "own_default": whose_words.own_default,
}
"""Maps Boolean fields of rules to the functions that compute them for calls."""

FAST_MS: Final = 10
"""Latency in milliseconds below which the server cannot have asked a service on the internet."""

TIME_LIMITS: Final = (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 600)
"""Common time limits of programs, in seconds."""

ARGUMENT_VALUE: Final = r"""[:\[]\s*(?:"[^"\\]{3,80}"|-?[0-9]{3,})"""
"""Matches values in the JSON of arguments that are distinctive enough to be recognised in a text.
"""

MASKED_VALUES: Final = 3
"""Maximum number of argument values, longest first, that are masked in one text."""

_MAX_NAME: Final = 1_000
"""Length in bytes above which a tool's name is not searched for, because polars compiles each name.
"""
_NAMED_TOOL: Final = pl.when(
    pl.concat_str(
        Inputs.error_text.col, Inputs.stderr_error.col, separator="\n", ignore_nulls=True
    ).str.contains(
        pl.when(Inputs.tool.col.str.len_bytes() <= _MAX_NAME).then(Inputs.tool.col), literal=True
    )
).then(Inputs.tool.col)

_Numbers: TypeAlias = npt.NDArray[np.int64]


def failed_calls(calls: pl.DataFrame, definitions: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return the failed calls with all columns of `Inputs`, and with their row index `row`.

    Args:
        calls: some or all columns of `Inputs`.
        definitions: `Definitions` of the tools, if `calls` has no `input_schema`.
    """
    failed = _with_inputs(calls).with_row_index("row").filter(Inputs.outcome.col.is_in(FAILED))
    # If a call was validated, missing arguments are known to be empty.
    were_validated = Inputs.input_schema_state.col.is_in(["valid", "invalid"])
    none_sent = pl.when(were_validated).then(pl.lit("{}"))
    failed = failed.with_columns(pl.coalesce(Inputs.arguments.col, none_sent))
    if definitions is not None:
        schemas = definitions.lazy().select("definition", "input_schema").unique("definition")
        failed = failed.drop("input_schema").join(
            schemas, on="definition", how="left", maintain_order="left"
        )
    if "tool_kind" not in calls.columns:
        kind = tool_kinds.kind(
            Inputs.tool.col, pl.coalesce(Inputs.input_schema.col, Inputs.arguments.col)
        )
        failed = failed.with_columns(kind.alias(Inputs.tool_kind.name))
    return failed.pipe(run_query)


def _with_inputs(calls: pl.DataFrame) -> pl.LazyFrame:
    """Return the columns of `Inputs`; fill missing columns with null."""
    present = set(calls.columns)
    return calls.lazy().select(
        (pl.col(name) if name in present else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in Inputs.schema().items()
    )


class Facts(msgspec.Struct, frozen=True):
    """The distinct combinations of facts about failed calls."""

    kinds: pl.DataFrame
    """One row per distinct combination of facts (a "kind" of call)."""
    kind_of_row: _Numbers
    """For each failed call, the row index of its kind in `kinds`."""
    matched: list[match.Rows | None]
    """For each rule, the indexes of the distinct texts that its patterns match; None if it has
    none."""
    text_count: int
    """Number of distinct texts."""
    masked: pl.Series
    """The distinct masked texts for the text model, to whose indexes `kinds` refers."""


def collect(failed: pl.DataFrame, chosen: tuple[VerdictRule, ...]) -> Facts:
    """Match the rules' patterns against the distinct texts, and collect all other facts.

    Args:
        failed: the result of `failed_calls`.
        chosen: the rules, in order of precedence.
    """
    text = [each.name for each in (_Facts.error_text, _Facts.stderr_error, _Facts.named_tool)]
    failed = failed.with_columns(named_tool=_NAMED_TOOL)
    replies = _texts(failed[text].unique(maintain_order=True)).pipe(run_query)
    texts = replies.select("stripped", "line").unique("stripped", maintain_order=True)
    stripped = texts.get_column(_Facts.stripped.name)
    matched = match.match_rules(chosen, stripped, stripped, texts.get_column(_Facts.line.name))
    frame = (
        failed.lazy()
        .join(
            replies.lazy()
            .select(*text, "text_status", "stripped", "stack_trace")
            .join(texts.lazy().select("stripped").with_row_index("text"), on="stripped"),
            on=text,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        .with_columns(
            status=pl.coalesce("http_status", "text_status"),
            end=pl.when(Inputs.outcome.col == "no_response").then(_recording_end()),
            # Round down to tenths, so that there are few kinds of calls.
            outage=Inputs.concurrent_failure_share.col.mul(10).floor().truediv(10),
            time_limit=_took_a_time_limit(),
            fast=Inputs.latency_ms.col < FAST_MS,
        )
        .pipe(run_query)
    )
    columns = _call_pattern_columns(chosen)
    tested = _Tested(frame, stripped, chosen, matched)
    matches = [tested.column_matches(*test).alias(name) for test, name in columns.items()]
    words_of = [tested.whose_words(name) for name in _WORDS]
    named = _named_arguments(frame)
    masked = _masked(frame, named)
    distinct = masked.unique(maintain_order=True)
    numbered = distinct.to_frame().with_row_index("words")
    words = masked.to_frame().join(numbered, on="masked", how="left", maintain_order="left")
    frame = frame.hstack(
        [
            *(*matches, *words_of, tested.quoted_from(), words.get_column("words")),
            row_mask(named, frame.height).alias("names_argument"),
        ]
    )
    key = ["text", "outcome", "error_code", "status", "input_schema_state", "end", "outage"]
    key += ["names_argument", "stack_trace", "time_limit", "tool_record", "peer_record"]
    key += ["fast", "denied_before", "works_otherwise", "asks_upstream", "client_lacks"]
    key += ["quotes", "words", "tool_kind", *_WORDS, *columns.values()]
    facts = frame[key]
    kinds = facts.lazy().unique(maintain_order=True).with_row_index("kind").pipe(run_query)
    kind_of_row = facts.join(kinds, on=key, how="left", nulls_equal=True, maintain_order="left")
    return Facts(
        kinds=kinds,
        kind_of_row=kind_of_row.get_column(_Facts.kind.name).to_numpy().astype(np.int64),
        matched=matched,
        text_count=texts.height,
        masked=distinct,
    )


def _texts(distinct: pl.DataFrame) -> pl.LazyFrame:
    """Add the columns that rules test: `stripped`, `line`, `text_status` and `stack_trace`.

    Args:
        distinct: distinct combinations of `error_text`, `stderr_error` and `named_tool`.
    """
    reply, exception = Inputs.error_text.col.fill_null(""), Inputs.stderr_error.col
    messages = json_message.messages(distinct.get_column(_Facts.error_text.name))
    message = pl.lit(messages)
    trace = pl.lit(None, pl.String)
    # Compiling a pattern takes longer than matching it, so leave out what no text needs.
    if messages.count():
        # Without a message, other members of the JSON object may name the cause.
        message = pl.when(~error_text.is_uninformative(message)).then(message)
    if distinct.get_column(_Facts.stderr_error.name).count():
        trace = error_text.stack_trace(reply, exception)
    return (
        distinct.lazy()
        .with_columns(
            stripped=error_text.with_words_of_code(
                error_text.strip_wrappers(pl.coalesce(message, reply))
            ),
            stack_trace=trace,
            text_status=error_text.http_status(reply),
        )
        .with_columns(
            stripped=error_text.with_exception(
                _Facts.stripped.col, exception, _Facts.stack_trace.col
            )
        )
        .with_columns(
            stripped=error_text.without_tool_name(_Facts.stripped.col, _Facts.named_tool.col)
        )
        .with_columns(line=error_text.first_line(_Facts.stripped.col))
    )


def texts_of(calls: pl.DataFrame) -> pl.DataFrame:
    """Return each call's error text as rules and the text model read it, for the functions below.

    Args:
        calls: some or all columns of `Inputs`.
    """
    rows = _with_inputs(calls).with_columns(named_tool=_NAMED_TOOL).pipe(run_query)
    return _texts(rows).with_row_index("text").pipe(run_query)


def matched_texts(
    texts: pl.DataFrame, chosen: Iterable[VerdictRule], rows: Mapping[str, list[int]]
) -> dict[str, dict[int, str | None]]:
    """Return the parts of error texts that rules' patterns match.

    Args:
        texts: the result of `texts_of`.
        chosen: the rules.
        rows: maps rule ids to the row indexes of the calls whose text the rule matches.

    Returns:
        For each rule id, a map from the row index of a call to the matched part of its text.
    """
    parts = {}
    for rule in chosen:
        if rule.matches:
            column = _Facts.line if rule.where == "first_line" else _Facts.stripped
            own = rows[rule.id]
            of_rule = texts.get_column(column.name).gather(own)
            found = match.found_parts(of_rule, rule.matches, start=rule.where == "start")
            parts[rule.id] = dict(zip(own, found, strict=True))
    return parts


def masked_texts(texts: pl.DataFrame) -> pl.Series:
    """Return the texts of `texts_of` as the text model reads them: names and values are masked."""
    return _masked(texts, _named_arguments(texts))


def _recording_end() -> pl.Expr:
    """Return an expression for how an unanswered call's recording ended (`VerdictRule.end`)."""
    return (
        pl.when(Inputs.signal.col.is_in([6, 8, 11]) | (Inputs.exit_code.col.is_in([-6, -8, -11])))
        .then(pl.lit("crashed"))
        .when((Inputs.signal.col > 0) | (Inputs.exit_code.col < 0))
        .then(pl.lit("killed"))
        .when(Inputs.exit_code.col > 0)
        .then(pl.lit("crashed"))
        .when(Inputs.exit_code.col == 0)
        .then(pl.lit("exited"))
        .when(Inputs.closed.col)
        .then(pl.lit("closed"))
        .otherwise(pl.lit("unknown"))
    )


def _took_a_time_limit() -> pl.Expr:
    """Return an expression that is true if a call took slightly longer than a common time limit."""
    seconds = Inputs.latency_ms.col / 1000
    return pl.any_horizontal(
        (seconds - limit).is_between(0, max(0.3, 0.02 * limit)) for limit in TIME_LIMITS
    ).fill_null(value=False)


def _call_patterns(rule: VerdictRule) -> list[tuple[str, str]]:
    """Return the fields of a rule that hold a pattern for the call, with their patterns."""
    fields = ("tool", "arguments", "arguments_unless")
    return [(field, pattern) for field in fields if (pattern := getattr(rule, field))]


def _call_pattern_columns(chosen: tuple[VerdictRule, ...]) -> dict[tuple[str, str], str]:
    """Map each pair of a field and a pattern in the rules to a column name, such as `matches_0`."""
    tests = {test for rule in chosen for test in _call_patterns(rule)}
    return {test: f"matches_{number}" for number, test in enumerate(sorted(tests))}


class _Tested(msgspec.Struct, frozen=True):
    """Failed calls, with facts that are collected only where a rule that needs them may match."""

    frame: pl.DataFrame
    """One row per call."""
    texts: pl.Series
    """The distinct texts, without wrappers, to whose indexes the frame's `text` refers."""
    chosen: tuple[VerdictRule, ...]
    """The rules, in order of precedence."""
    matched: list[match.Rows | None]
    """For each rule, the indexes of the texts that its patterns match; None if it has none."""

    def column_matches(self, field: str, pattern: str) -> pl.Series:
        """Return, for each row, whether the column that `field` tests matches the pattern.

        Rows that no rule needs are False. Unknown arguments count as a match of
        `arguments_unless`, because a rule with this field must not match calls with unknown
        arguments.
        """
        rows = self._rows(lambda rule: pattern == getattr(rule, field))
        matches = np.zeros(self.frame.height, dtype=np.bool_)
        if len(rows):
            column = Inputs.tool if field == "tool" else Inputs.arguments
            values = column.col.gather(pl.lit(indices(rows)))
            found = values.str.contains(match.alternation([pattern]))
            query = self.frame.lazy().select(found.fill_null(value=field == "arguments_unless"))
            matches[rows] = query.pipe(run_query).to_series().to_numpy()
        return series_from_numpy(matches)

    def quoted_from(self) -> pl.Series:
        """Return `quotes`: the origin of the object that each row's text names.

        The origin is null in rows where no rule that uses it matches the text.
        """
        rows = self._rows(lambda rule: rule.quotes != "")
        sources = pl.Series("quotes", [None], pl.String).new_from_index(0, self.frame.height)
        if len(rows):
            source = named_object.source(self.texts, self._calls(rows, _Facts.arguments))
            sources = sources.scatter(indices(rows), source)
        parts = self._rows(lambda rule: rule.quotes == "component")
        if len(parts):
            calls = self._calls(parts, _Facts.arguments, _Facts.tool)
            unmentioned = named_object.names_unmentioned_component(self.texts, calls)
            own = (unmentioned & sources[parts].is_null()).to_numpy()
            sources = sources.scatter(parts[own], "component")
        return sources

    def whose_words(self, name: str) -> pl.Series:
        """Return the values of the column `name` of `_WORDS`.

        The column is False in rows where no rule that uses it matches the text.
        """
        rows = self._rows(lambda rule: getattr(rule, name))
        values = np.zeros(self.frame.height, dtype=np.bool_)
        if len(rows):
            calls = self._calls(rows, _Facts.arguments, _Facts.input_schema)
            values[rows] = _WORDS[name](self.texts, calls).to_numpy()
        return series_from_numpy(values, name)

    def _calls(self, rows: _Numbers, *columns: Column) -> pl.DataFrame:
        names = [column.name for column in (_Facts.text, *columns)]
        return self.frame[names][indices(rows)]

    def _rows(self, needs: Callable[[VerdictRule], bool]) -> _Numbers:
        """Return the indexes of rows whose text is matched by a rule that needs the fact."""
        number = self.frame.get_column(_Facts.text.name).to_numpy()
        wanted = np.zeros(number.max(initial=0) + 1, dtype=np.bool_)
        for rule, texts in zip(self.chosen, self.matched, strict=True):
            if needs(rule):
                wanted[slice(None) if texts is None else texts] = True
        return np.flatnonzero(wanted[number])


def _named_arguments(frame: pl.DataFrame) -> pl.DataFrame:
    """Return `row` and `value` for each argument value (`ARGUMENT_VALUE`) that the text contains.

    Short values must be whole words in the text.
    """
    value = _Facts.value.col.str.strip_chars(':[" \t\r\n')
    named = (
        frame.lazy()
        .select(
            "stripped",
            row=pl.int_range(pl.len(), dtype=pl.UInt32),
            value=Inputs.arguments.col.str.extract_all(ARGUMENT_VALUE),
        )
        .explode("value", empty_as_null=False)
        .drop_nulls()
        .filter(_Facts.stripped.col.str.contains(value, literal=True))
        .pipe(run_query)
    )
    is_short = value.str.len_bytes() <= named_object.LONG
    words, words_of_value = map(named_object.as_words, (_Facts.stripped.col, value))
    short = named.lazy().filter(is_short).filter(words.str.contains(words_of_value, literal=True))
    found = pl.concat([short, named.lazy().filter(~is_short)])
    return found.select("row", value=value).pipe(run_query)


def _masked(frame: pl.DataFrame, named: pl.DataFrame) -> pl.Series:
    """Return each row's masked text (see `text_model`), with the values of arguments removed.

    Args:
        frame: has `text` and `stripped`.
        named: the result of `_named_arguments`.
    """
    # Mask longer values first, because a shorter value may be part of a longer one.
    longest = _Facts.value.col.unique().sort_by(
        _Facts.value.col.unique().str.len_bytes(), _Facts.value.col.unique(), descending=True
    )
    values = [f"value{rank}" for rank in range(MASKED_VALUES)]
    by_row = (
        named.lazy()
        .group_by("row")
        .agg(value=longest)
        .select(
            "row",
            *(
                _Facts.value.col.list.get(rank, null_on_oob=True).alias(name)
                for rank, name in enumerate(values)
            ),
        )
    )
    rows = frame.lazy().select("text", "stripped", row=pl.int_range(pl.len(), dtype=pl.UInt32))
    rows = rows.join(by_row, on="row", how="left", maintain_order="left")
    text = _Facts.stripped.col.str.head(text_model.HEAD)
    for name in values:
        parts = text.str.split(pl.col(name)).list.join(text_model.QUOTED)
        text = pl.when(pl.col(name).is_not_null()).then(parts).otherwise(text)
    key = ["text", *values]
    distinct = rows.unique(key).select(*key, masked=text_model.masked(text))
    return (
        rows.join(distinct, on=key, how="left", nulls_equal=True, maintain_order="left")
        .select("masked")
        .pipe(run_query)
        .get_column("masked")
    )


def matching_kinds(
    facts: Facts, chosen: tuple[VerdictRule, ...]
) -> Iterator[tuple[int, match.Mask]]:
    """Yield the index of each rule that matches calls, and a mask of the kinds that it matches."""
    columns = _call_pattern_columns(chosen)
    text_of_kind = facts.kinds.get_column(_Facts.text.name).to_numpy()
    tried = {
        number: conditions
        for number, (rule, texts) in enumerate(zip(chosen, facts.matched, strict=True))
        if (texts is None or len(texts)) and (conditions := list(_conditions(rule, columns)))
    }
    met = facts.kinds.select(
        pl.all_horizontal(conditions).fill_null(value=False).alias(str(number))
        for number, conditions in tried.items()
    )
    for number, texts in enumerate(facts.matched):
        if texts is not None and not len(texts):
            continue
        mask = match.with_texts(texts, text_of_kind, facts.text_count)
        if number in tried:
            mask &= met[str(number)].to_numpy()
        yield number, mask


def _conditions(rule: VerdictRule, columns: dict[tuple[str, str], str]) -> Iterator[pl.Expr]:
    """Yield expressions for a rule's conditions other than its patterns."""
    for column, allowed in (
        ("outcome", rule.outcomes),
        ("error_code", rule.codes),
        ("input_schema_state", rule.schema),
        ("end", rule.end),
        ("quotes", [rule.quotes] if rule.quotes else []),
        ("stack_trace", [rule.stack_trace] if rule.stack_trace else []),
        ("tool_record", rule.tool_record),
        ("peer_record", rule.peer_record),
        ("tool_kind", rule.tool_kind),
    ):
        if allowed:
            yield pl.col(column).is_in(list(allowed))
    if rule.statuses:
        yield status_in(rule.statuses)
    if rule.outage:
        yield _Facts.outage.col >= rule.outage
    flags = ("names_argument", "time_limit", "fast")
    others = ("denied_before", "works_otherwise", "asks_upstream", "client_lacks")
    for name in (*flags, *others, *_WORDS):
        if getattr(rule, name):
            yield pl.col(name)
    for test in _call_patterns(rule):
        is_match = pl.col(columns[test])
        yield ~is_match if test[0] == "arguments_unless" else is_match
