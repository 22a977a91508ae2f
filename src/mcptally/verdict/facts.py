"""Collects the facts about failed calls that the conditions of rules test."""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.tables.arrow import indices, series_from_numpy
from mcptally.tables.outcomes import FAILED
from mcptally.tables.queries import run_query
from mcptally.verdict import error_text, json_message, match, named_object
from mcptally.verdict.rule_model import VerdictRule, status_in

INPUTS: Final[dict[str, pl.DataType]] = {
    "outcome": pl.String(),
    "error_text": pl.String(),
    "error_code": pl.Int64(),
    "http_status": pl.Int32(),
    "input_schema_state": pl.String(),
    "tool": pl.String(),
    "arguments": pl.String(),
    "exit_code": pl.Int64(),
    "signal": pl.Int64(),
    "closed": pl.Boolean(),
    "concurrent_failure_share": pl.Float64(),
    "stderr_error": pl.String(),
    "latency_ms": pl.Float64(),
    "tool_record": pl.String(),
    "peer_record": pl.String(),
}
"""The columns that `judge` reads; a missing column counts as null."""

TIME_LIMITS: Final = (5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300, 600)
"""Usual time limits in seconds."""

ARGUMENT_VALUE: Final = r"""[:\[]\s*(?:"[^"\\]{3,80}"|-?[0-9]{3,})"""
"""Values in the JSON text of arguments that are rare enough to recognise in a text."""

_Numbers: TypeAlias = npt.NDArray[np.int64]


def failed_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the failed calls with all columns of `INPUTS` and their row number `row`."""
    return (
        _with_inputs(calls)
        .with_row_index("row")
        .filter(pl.col("outcome").is_in(FAILED))
        .pipe(run_query)
    )


def _with_inputs(calls: pl.DataFrame) -> pl.LazyFrame:
    """Return the columns of `INPUTS`; those that are missing are null."""
    present = set(calls.columns)
    return calls.lazy().select(
        (pl.col(name) if name in present else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in INPUTS.items()
    )


class Facts(msgspec.Struct, frozen=True):
    """The distinct combinations of facts about failed calls that rules test."""

    kinds: pl.DataFrame
    """One row per distinct combination of facts ("kind" of call)."""
    kind_of_row: _Numbers
    """For each failed call the row of its kind in `kinds`."""
    matched: list[match.Rows | None]
    """For each rule the distinct texts that its patterns match; None: it has no patterns."""
    text_count: int
    """How many distinct texts there are."""


def collect(failed: pl.DataFrame, chosen: tuple[VerdictRule, ...]) -> Facts:
    """Match the rules' patterns against the distinct texts and collect all other facts.

    Args:
        failed: the result of `failed_calls`.
        chosen: the rules, by order.
    """
    text = ["error_text", "stderr_error"]
    texts = _texts(failed[text].unique(maintain_order=True)).with_row_index("text").pipe(run_query)
    matched = match.match_rules(chosen, texts["stripped"], texts["stripped"], texts["line"])
    frame = (
        failed.lazy()
        .join(
            texts.lazy().select(*text, "text", "text_status", "stripped", "stack_trace"),
            on=text,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        .with_columns(
            status=pl.coalesce("http_status", "text_status"),
            end=pl.when(pl.col("outcome") == "no_response").then(_recording_end()),
            # Rounded down to tenths, so that there are few kinds of calls.
            outage=pl.col("concurrent_failure_share").mul(10).floor().truediv(10),
            time_limit=_took_a_time_limit(),
        )
        .pipe(run_query)
    )
    columns = _call_pattern_columns(chosen)
    matches = [
        _column_matches(frame, field, pattern, chosen, matched).alias(name)
        for (field, pattern), name in columns.items()
    ]
    quotes = _quoted_from(texts["stripped"], frame, chosen, matched).alias("quotes")
    names_argument = _names_an_argument(frame).alias("names_argument")
    frame = frame.hstack([*matches, quotes, names_argument])
    key = ["text", "outcome", "error_code", "status", "input_schema_state", "end", "outage"]
    key += ["names_argument", "stack_trace", "time_limit", "tool_record", "peer_record"]
    key += ["quotes", *columns.values()]
    facts = frame[key]
    kinds = facts.lazy().unique(maintain_order=True).with_row_index("kind").pipe(run_query)
    kind_of_row = facts.join(kinds, on=key, how="left", nulls_equal=True, maintain_order="left")
    return Facts(
        kinds=kinds,
        kind_of_row=kind_of_row["kind"].to_numpy().astype(np.int64),
        matched=matched,
        text_count=texts.height,
    )


def _texts(distinct: pl.DataFrame) -> pl.LazyFrame:
    """Add the columns that rules read: `stripped`, `line`, `text_status` and `stack_trace`.

    Args:
        distinct: distinct combinations of `error_text` and `stderr_error`.
    """
    reply, exception = pl.col("error_text").fill_null(""), pl.col("stderr_error")
    message = pl.lit(json_message.messages(distinct["error_text"]))
    # The members without a message may name the cause.
    message = pl.when(~error_text.is_masked(message)).then(message)
    return (
        distinct.lazy()
        .with_columns(
            stripped=error_text.strip_wrappers(pl.coalesce(message, reply)),
            stack_trace=error_text.stack_trace(reply, exception),
            text_status=error_text.http_status(reply),
        )
        .with_columns(
            stripped=error_text.with_exception(pl.col("stripped"), exception, pl.col("stack_trace"))
        )
        .with_columns(line=error_text.first_line(pl.col("stripped")))
    )


def matched_texts(
    calls: pl.DataFrame, chosen: Iterable[VerdictRule]
) -> dict[str, list[str | None]]:
    """Return the parts of each call's text that rules about the text match.

    Args:
        calls: any of the columns of `INPUTS`.
        chosen: the rules.

    Returns:
        Id of each rule about the text → one text per row; None where it matches nothing.
    """
    parts = {}
    for rule in chosen:
        if rule.matches:
            column = pl.col("line" if rule.where == "first_line" else "stripped")
            pattern = f"({match.alternation(rule.matches, start=rule.where == 'start')})"
            parts[rule.id] = column.str.extract(pattern, 1)
    rows = _with_inputs(calls).select("error_text", "stderr_error").pipe(run_query)
    texts = _texts(rows).select(**parts)
    return texts.pipe(run_query).to_dict(as_series=False)


def _recording_end() -> pl.Expr:
    """Return how the recording of a call without a response ended (`VerdictRule.end`)."""
    return (
        pl.when(pl.col("signal").is_in([6, 8, 11]) | (pl.col("exit_code").is_in([-6, -8, -11])))
        .then(pl.lit("crashed"))
        .when((pl.col("signal") > 0) | (pl.col("exit_code") < 0))
        .then(pl.lit("killed"))
        .when(pl.col("exit_code") > 0)
        .then(pl.lit("crashed"))
        .when(pl.col("exit_code") == 0)
        .then(pl.lit("exited"))
        .when(pl.col("closed"))
        .then(pl.lit("closed"))
        .otherwise(pl.lit("unknown"))
    )


def _took_a_time_limit() -> pl.Expr:
    """Return whether a call took just over one of `TIME_LIMITS`."""
    seconds = pl.col("latency_ms") / 1000
    return pl.any_horizontal(
        (seconds - limit).is_between(0, max(0.3, 0.02 * limit)) for limit in TIME_LIMITS
    ).fill_null(value=False)


def _call_pattern_columns(chosen: tuple[VerdictRule, ...]) -> dict[tuple[str, str], str]:
    """Map each (field of rules, pattern) that some rule tests to the name of a column."""
    tests = {("tool", rule.tool) for rule in chosen if rule.tool}
    tests |= {("arguments", rule.arguments) for rule in chosen if rule.arguments}
    tests |= {
        ("arguments_unless", rule.arguments_unless) for rule in chosen if rule.arguments_unless
    }
    return {test: f"matches_{number}" for number, test in enumerate(sorted(tests))}


def _column_matches(
    frame: pl.DataFrame,
    field: str,
    pattern: str,
    chosen: tuple[VerdictRule, ...],
    matched: list[match.Rows | None],
) -> pl.Series:
    """Return whether the column that `field` tests matches; False for rows that are not needed.

    A rule needs the column only for rows whose text its patterns match. Unknown arguments count as
    a match of `arguments_unless`, because a rule with that field must not match them.
    """
    rows = _rows_of_texts(
        frame,
        [
            texts
            for rule, texts in zip(chosen, matched, strict=True)
            if pattern == getattr(rule, field)
        ],
    )
    matches = np.zeros(frame.height, dtype=np.bool_)
    if len(rows):
        column = pl.col("tool" if field == "tool" else "arguments").gather(pl.lit(indices(rows)))
        found = column.str.contains(match.alternation([pattern]))
        query = frame.lazy().select(found.fill_null(value=field == "arguments_unless"))
        matches[rows] = query.pipe(run_query).to_series().to_numpy()
    return series_from_numpy(matches)


def _quoted_from(
    texts: pl.Series,
    frame: pl.DataFrame,
    chosen: tuple[VerdictRule, ...],
    matched: list[match.Rows | None],
) -> pl.Series:
    """Return where the object that each text names comes from (`VerdictRule.quotes`).

    Null where no rule with this condition matches the text.
    """
    rows = _rows_of_texts(
        frame, [texts for rule, texts in zip(chosen, matched, strict=True) if rule.quotes]
    )
    sources = pl.Series([None], dtype=pl.String).new_from_index(0, frame.height)
    if len(rows):
        source = named_object.source(texts, frame[["text", "arguments"]][indices(rows)])
        sources = sources.scatter(indices(rows), source)
    parts = _rows_of_texts(
        frame,
        [texts for rule, texts in zip(chosen, matched, strict=True) if rule.quotes == "component"],
    )
    if len(parts):
        calls = frame[["text", "arguments", "tool"]][parts]
        unmentioned = named_object.names_unmentioned_component(texts, calls)
        own = (unmentioned & sources[parts].is_null()).to_numpy()
        sources = sources.scatter(parts[own], "component")
    return sources


def _names_an_argument(frame: pl.DataFrame) -> pl.Series:
    """Return whether each text contains a value of the arguments (`ARGUMENT_VALUE`).

    Short values have to be whole words of the text.
    """
    value = pl.col("value").str.strip_chars(':[" \t\r\n')
    named = (
        frame.lazy()
        .select(
            "stripped",
            row=pl.int_range(pl.len()),
            value=pl.col("arguments").str.extract_all(ARGUMENT_VALUE),
        )
        .explode("value")
        .drop_nulls()
        .filter(pl.col("stripped").str.contains(value, literal=True))
        .pipe(run_query)
    )
    is_short = value.str.len_bytes() <= named_object.LONG
    words, words_of_value = map(named_object.as_words, (pl.col("stripped"), value))
    short = named.lazy().filter(is_short).filter(words.str.contains(words_of_value, literal=True))
    names = np.zeros(frame.height, dtype=np.bool_)
    found = pl.concat([short, named.lazy().filter(~is_short)]).select("row").pipe(run_query)
    names[found["row"].to_numpy()] = True
    return series_from_numpy(names)


def _rows_of_texts(frame: pl.DataFrame, matched: list[match.Rows | None]) -> _Numbers:
    """Return the rows of `frame` whose text is in at least one of `matched`; None is every text."""
    number = frame["text"].to_numpy()
    wanted = np.zeros(frame["text"].n_unique(), dtype=np.bool_)
    for texts in matched:
        wanted[slice(None) if texts is None else texts] = True
    return np.flatnonzero(wanted[number])


def matching_kinds(
    facts: Facts, chosen: tuple[VerdictRule, ...]
) -> Iterator[tuple[int, match.Mask]]:
    """Yield, in order, each rule that matches some kind of call, and a mask of these kinds."""
    columns = _call_pattern_columns(chosen)
    text_of_kind = facts.kinds["text"].to_numpy()
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
        if texts is None:
            mask = np.ones(facts.kinds.height, dtype=np.bool_)
        elif not len(texts):
            continue
        else:
            of_text = np.zeros(facts.text_count, dtype=np.bool_)
            of_text[texts] = True
            mask = of_text[text_of_kind]
        if number in tried:
            mask &= met[str(number)].to_numpy()
        yield number, mask


def _conditions(rule: VerdictRule, columns: dict[tuple[str, str], str]) -> Iterator[pl.Expr]:
    """Yield the conditions of a rule besides its patterns."""
    for column, allowed in (
        ("outcome", rule.outcomes),
        ("error_code", rule.codes),
        ("input_schema_state", rule.schema),
        ("end", rule.end),
        ("quotes", [rule.quotes] if rule.quotes else []),
        ("stack_trace", [rule.stack_trace] if rule.stack_trace else []),
        ("tool_record", rule.tool_record),
        ("peer_record", rule.peer_record),
    ):
        if allowed:
            yield pl.col(column).is_in(list(allowed))
    if rule.statuses:
        yield status_in(rule.statuses)
    if rule.outage:
        yield pl.col("outage") >= rule.outage
    for name in ("names_argument", "time_limit"):
        if getattr(rule, name):
            yield pl.col(name)
    if rule.tool:
        yield pl.col(columns["tool", rule.tool])
    if rule.arguments:
        yield pl.col(columns["arguments", rule.arguments])
    if rule.arguments_unless:
        yield ~pl.col(columns["arguments_unless", rule.arguments_unless])
