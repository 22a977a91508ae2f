"""Finds hidden errors: results that are not marked as errors but report a failure."""

import functools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.tables.arrow import indices, series_from_numpy
from mcptally.tables.declaration import Column, StageTable
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Judged
from mcptally.verdict import certainty, error_text, json_paths, match, tool_kinds
from mcptally.verdict.rule_model import HiddenRule, TextRule, shipped_rules

FILES: Final = ("hidden.toml",)

HEAD: Final = 1200
"""Number of characters that rules examine at the start of a text, where failures are reported."""
TAIL: Final = 80
"""Number of characters that rules examine at the end of a longer text, where exit codes are
reported."""
MAX_REPORT: Final = 2000
"""Maximum number of characters that are kept of a text that reports a failure."""
THRESHOLD: Final = 50.0
"""Certainty, in percent, from which a result counts as a hidden error."""
MAX_INSIDE: Final = 4000
"""Maximum length in characters of a text that is searched for embedded JSON."""
MAX_ECHO: Final = 60
"""Maximum length in characters of the part of a line that is searched for in the arguments."""


class HiddenErrors(StageTable):
    """The result of `find_hidden_errors`, one row per result.

    If `hidden_rule` says that the text is not a failure, `hidden_text` is null.
    """

    hidden_error = Column(pl.Boolean, "Whether the result reports a failure.")
    hidden_certainty = Judged.hidden_certainty
    hidden_rule = Judged.hidden_rule
    hidden_text = Column(pl.String, "The text that reports the failure.")


USUAL_SHARE: Final = 0.8
"""Share of JSON among a tool's results from which JSON is its usual form."""
MIN_RESULTS: Final = 5
"""Minimum number of known results from which a tool's usual form is determined."""
MIN_ECHO: Final = 6
"""Minimum length of a line that counts as an echo; shorter lines may occur in the arguments by
chance."""

_JSON: Final = r"""^\s*(?:\{\s*["}]|\[\s*[\[{"\]\d-])"""
_JSON_INSIDE: Final = (
    r"\A(?:[^\n{\[]{0,100}[:\n]\s*)?(?:```\w*\s*)?([{\[][\s\S]*[}\]])\s*(?:```\s*)?\z"
)
"""Matches JSON that is in a code fence, or follows a short line such as `API response: 422`."""
_MESSAGE_LINES: Final = (
    r"(?mi)^(?:\S*[.\]])?(?:error\w*|errors|err\w*msg|message|msg|reason|details?|description|exception"
    r"|failure\w*|title|summary|result|text)(?:\[\])?(?:\.\w+)? = \"[^\n]+"
)

_STATUS_LINE: Final = (
    r"(?mi)^(?:\S*[.\]])?(?:http_?)?(?:status|code|status_?code) = \"?([45]\d\d)\b"
)
"""Matches a line `path = value` in which a member for the status has an HTTP error status."""

_ENGLISH: Final = r"^\S*(?:_en|code|type) = "
"""Matches a line whose member is in English if others are in another language, or a code."""

_SECOND_LINE: Final = r"^[^\r\n]*[\r\n]+([^\r\n]*)"

_TEXT_NAME: Final = '"text":'
"""Name of the member that contains a content block's text, in the JSON of a result."""
_TEXT_VALUE: Final = r'^\s*"((?:[^"\\]|\\[ -~])+)'
_LATER_CHARS: Final = 600
"""Maximum number of characters that are kept of each text block after the first.

The number is a repetition in a pattern, which takes 2 ms to compile."""


class Inputs(StageTable):
    """The columns that `find_hidden_errors` reads; a missing column counts as null."""

    server = Judged.server
    text = Column(pl.String, "Text of the first block.")
    later_texts = Column(pl.List(pl.String), "Beginnings of the texts of the other blocks.")
    structured = Column(pl.String, "JSON text of the result's structuredContent.")
    tool = Judged.tool
    arguments = Judged.arguments
    tool_kind = Judged.tool_kind


class _Results(Inputs):
    """The inputs, and how many of the tool's results in the archive have a text and are JSON."""

    results_seen = Judged.results_seen
    results_json = Judged.results_json


class _Blocks(_Results):
    """One row per text block of a result, with the views of the text that rules test."""

    result = Column(pl.UInt32, "Row of the result.")
    is_json = Column(pl.Boolean, "Whether the text is JSON.")
    prose = Column(pl.String, "The text, unless it is JSON.")
    unusual = Column(pl.Boolean, "Whether the tool usually answers in JSON, but not here.")
    json = Column(pl.String, "The members of the JSON, one per line.")


READ: Final = tuple(
    column.name
    for column in (
        *(_Results.server, _Results.tool, _Results.arguments, _Results.tool_kind),
        *(_Results.results_seen, _Results.results_json),
    )
)
"""The columns of `_Results`, other than texts, that rules read."""


@functools.cache
def hidden_error_rules() -> tuple[HiddenRule, ...]:
    """Return the shipped rules about results, in order of precedence."""
    return shipped_rules(HiddenRule, *FILES)


def find_hidden_errors(
    calls: pl.DataFrame, ruleset: Sequence[HiddenRule] | None = None
) -> pl.DataFrame:
    """Find the results that report a failure; return one row per row of `calls`, in order.

    Args:
        calls: results not marked as errors, with some or all columns of `Inputs`.
        ruleset: rules that replace the shipped rules.

    Returns:
        `HiddenErrors`.
    """
    chosen = tuple(hidden_error_rules() if ruleset is None else ruleset)
    results = _inputs(calls)
    blocks = _blocks(results)
    none = len(chosen)
    rule_of_block = np.full(blocks.height, none, dtype=np.int64)
    for number, mask in _matching_blocks(blocks, chosen):
        rule_of_block[mask & (rule_of_block == none)] = number
    rule_of_result = rule_of_block[: results.height]
    _apply_echo_rule(results, chosen, rule_of_result)
    # If no rule decided on the first block, the first later block that reports a failure decides.
    block_of_result = np.arange(results.height)
    fails = np.array([*(rule.failure for rule in chosen), False])
    later = np.flatnonzero(fails[rule_of_block])
    later = later[later >= results.height]
    owners = blocks.get_column(_Blocks.result.name).to_numpy()[later]
    undecided = rule_of_result[owners] == none
    decided, first = np.unique(owners[undecided], return_index=True)
    block_of_result[decided] = later[undecided][first]
    decisions = _decisions(chosen)[indices(rule_of_block[block_of_result])]
    failing = (
        decisions.get_column(HiddenErrors.hidden_certainty.name).to_numpy() >= THRESHOLD
    ).nonzero()[0]
    texts = pl.Series([None], dtype=pl.String).new_from_index(0, results.height)
    if len(failing):
        reported = _failure_texts(blocks[indices(block_of_result[failing])])
        texts = texts.scatter(indices(failing), reported)
    failed = np.zeros(results.height, dtype=np.bool_)
    failed[failing] = True
    added = [series_from_numpy(failed, "hidden_error"), texts.alias("hidden_text")]
    return decisions.hstack(added)[list(HiddenErrors.columns())]


def later_texts(response: pl.Expr, count: pl.Expr) -> pl.Expr:
    """Return an expression for the beginnings of all text blocks except the first.

    Args:
        response: the JSON of a result.
        count: the number of text blocks in the result.
    """
    # An escape takes two characters. White space may precede the text.
    begin = pl.element().str.head(2 * _LATER_CHARS + 100)
    values = response.str.split(_TEXT_NAME).list.slice(1)
    texts = values.list.eval(begin.str.extract(_TEXT_VALUE, 1).drop_nulls())
    return texts.list.slice(1, count - 1).list.eval(
        pl.element()
        .str.replace_all(r"\n", "\n", literal=True)
        .str.replace_all(r"\\(.)", "$1")
        .str.head(_LATER_CHARS)
    )


def _blocks(results: pl.DataFrame) -> pl.DataFrame:
    """Return `_Blocks`: the first block of each result, and then all later blocks."""
    numbered = results.lazy().with_row_index("result")
    first = numbered.drop("later_texts")
    if results.get_column(_Results.later_texts.name).null_count() < results.height:
        later = (
            numbered.filter(_Results.later_texts.col.list.len() > 0)
            .explode("later_texts", empty_as_null=False)
            .with_columns(text="later_texts", structured=pl.lit(None, pl.String))
            .drop("later_texts")
        )
        first = pl.concat([first, later])
    is_json = _Results.text.col.str.contains(_JSON).fill_null(value=False)
    usual = usually_json(_Results.results_seen.col, _Results.results_json.col)
    blocks = (
        first.with_columns(is_json=is_json)
        .with_columns(
            prose=pl.when(~_Blocks.is_json.col).then("text"), unusual=~_Blocks.is_json.col & usual
        )
        .pipe(run_query)
    )
    # Choosing between two columns would copy their texts, so each is parsed on its own.
    fits = (_Results.structured.col.str.len_chars() <= json_paths.MAX_TEXT).fill_null(value=False)
    short = ~fits & (_Blocks.prose.col.str.len_chars() <= MAX_INSIDE)
    parsed = blocks.select(
        text=pl.when("is_json").then("text"),
        structured=pl.when(~_Blocks.is_json.col & fits).then("structured"),
        inside=pl.when(short).then("prose").str.extract(_JSON_INSIDE, 1),
    )
    lines = pl.concat_str(*map(json_paths.lines, parsed)).alias(_Blocks.json.name)
    return blocks.with_columns(lines)


def _decisions(chosen: tuple[HiddenRule, ...]) -> pl.DataFrame:
    """Return one row per rule, with its certainty and id, and a last row of nulls for "no rule"."""
    rows = [
        (percent if rule.failure else round(100 - percent, 1), rule.id)
        for rule, percent in zip(chosen, certainty.certainty_percent(chosen), strict=True)
    ]
    schema = {"hidden_certainty": pl.Float64(), "hidden_rule": pl.String()}
    return pl.DataFrame([*rows, (None, None)], schema=schema, orient="row")


def count_result_forms(calls: pl.LazyFrame, *by: str, **more: pl.Expr) -> pl.LazyFrame:
    """Count the results of each tool, and how many of them are JSON.

    Args:
        calls: results with `server`, `tool` and `text`.
        by: further columns to group by.
        more: maps further columns to conditions for the results that they count.

    Returns:
        `seen` (results with a text), `json`, `all` and `more` per `server`, `tool` and `by`.
    """
    text = _Results.text.col.cast(pl.String)
    return calls.group_by("server", "tool", *by, maintain_order=True).agg(
        seen=text.is_not_null().sum().cast(pl.Int64),
        json=text.str.contains(_JSON).sum().cast(pl.Int64),
        all=pl.len().cast(pl.Int64),
        **{name: condition.sum().cast(pl.Int64) for name, condition in more.items()},
    )


def usually_json(seen: pl.Expr, json: pl.Expr) -> pl.Expr:
    """Return an expression that is true if most results of a tool are JSON and prose is unusual."""
    return (seen.fill_null(0) >= MIN_RESULTS) & (json >= USUAL_SHARE * seen.fill_null(0))


def _inputs(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of `_Results`.

    If `calls` lacks the columns with counts, the results in `calls` themselves are counted.
    """
    if "results_seen" not in calls.columns:
        missing = [name for name in ("server", "tool") if name not in calls.columns]
        rows = calls.lazy().with_columns(pl.lit(None, pl.String).alias(name) for name in missing)
        known = (
            count_result_forms(rows)
            .drop("all")
            .rename({"seen": "results_seen", "json": "results_json"})
        )
        calls = rows.join(
            known, on=["server", "tool"], how="left", maintain_order="left", nulls_equal=True
        ).pipe(run_query)
    results = calls.select(
        (pl.col(name) if name in calls.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in _Results.schema().items()
    )
    if "tool_kind" in calls.columns:
        return results
    kind = tool_kinds.kind(_Results.tool.col, _Results.arguments.col)
    return results.with_columns(kind.alias(_Results.tool_kind.name))


class _ViewTexts(StageTable):
    """One row per distinct text of a view."""

    number = Column(pl.UInt32, "Number of the text.")
    text = Column(pl.String, "The part of the text that rules read.")
    start = Column(pl.String, "The same without decoration before it.")
    line = Column(pl.String, "Its first informative line.")
    chars = Column(pl.UInt32, "Characters of the text.")
    lines = Column(pl.UInt32, "Lines of the text.")


class _ViewMatches:
    """The distinct texts in one view of the blocks, and which rules match them."""

    def __init__(self, blocks: pl.DataFrame, column: str, rules: list[HiddenRule]) -> None:
        texts = blocks[[column]]
        text = pl.col(column)
        read = text if column == "json" else error_text.cut(text, HEAD, TAIL)
        reads_line = any(rule.where == "first_line" for rule in rules)
        distinct = (
            texts.lazy()
            .unique(maintain_order=True)
            .with_row_index("number")
            .with_columns(
                text=read.fill_null(""),
                chars=text.str.len_chars().fill_null(0),
                lines=text.str.strip_chars().str.count_matches("\n", literal=True).fill_null(0) + 1,
            )
            .with_columns(
                start=error_text.strip_decoration(_Results.text.col),
                # Compute the first line only if one of the rules tests it, because few rules do.
                **({"line": error_text.first_line(_Results.text.col)} if reads_line else {}),
            )
            .pipe(run_query)
        )
        numbered = texts.join(
            distinct[[column, "number"]],
            on=column,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        self._text_of_block = numbered.get_column(_ViewTexts.number.name).to_numpy()
        self._sizes = distinct[[_ViewTexts.chars.name, _ViewTexts.lines.name]]
        matched = match.match_rules(
            rules,
            distinct.get_column(_ViewTexts.text.name),
            distinct.get_column(_ViewTexts.start.name),
            distinct.get_column(_ViewTexts.line.name) if reads_line else None,
            within=self._short_enough,
        )
        self._matched = {rule.id: rows for rule, rows in zip(rules, matched, strict=True)}

    def blocks(self, rule: HiddenRule) -> match.Mask | None:
        """Return a mask of the blocks whose text a rule matches, or None if no text matches."""
        rows = self._matched[rule.id]
        if rows is not None and not len(rows):
            return None
        mask = match.with_texts(rows, self._text_of_block, self._sizes.height)
        if (short := self._short_enough(rule)) is not None:
            mask &= short[self._text_of_block]
        return mask

    def _short_enough(self, rule: TextRule) -> match.Mask | None:
        """Return a mask of the texts within the rule's size limits, or None if it has none."""
        limits = {"lines": rule.lines, "chars": rule.chars} if isinstance(rule, HiddenRule) else {}
        masks = [(self._sizes[name] <= limit).to_numpy() for name, limit in limits.items() if limit]
        return np.logical_and.reduce(masks) if masks else None


def _matching_blocks(
    blocks: pl.DataFrame, chosen: tuple[HiddenRule, ...]
) -> Iterator[tuple[int, match.Mask]]:
    """Yield the index of each rule that matches blocks, and a mask of the blocks.

    Rules with `echo` are left out, because `_apply_echo_rule` applies them.
    """
    views = {
        view: _ViewMatches(blocks, column, [rule for rule in chosen if rule.view == view])
        for view, column in (("text", "prose"), ("json", "json"))
    }
    for number, rule in enumerate(chosen):
        if rule.echo or (mask := views[rule.view].blocks(rule)) is None:
            continue
        for column, pattern in (("tool", rule.tool), ("arguments", rule.arguments)):
            if pattern and mask.any():
                mask[mask] = _contains(blocks[column], mask, pattern)
        for kinds, expected in ((rule.tool_kind, True), (rule.unless_kind, False)):
            if kinds:
                of_kind = blocks.get_column(_Blocks.tool_kind.name).is_in(kinds)
                mask &= of_kind.fill_null(value=False).to_numpy() == expected
        if rule.unusual:
            mask &= blocks.get_column(_Blocks.unusual.name).to_numpy()
        yield number, mask


def _contains(values: pl.Series, mask: match.Mask, pattern: str) -> match.Mask:
    """Return a mask of the values that are selected by `mask` and match the pattern."""
    tested = values.filter(series_from_numpy(mask)).to_frame("value")
    contains = pl.col("value").str.contains(match.alternation([pattern])).fill_null(value=False)
    found: match.Mask = tested.select(contains)["value"].to_numpy()
    return found


def _apply_echo_rule(
    results: pl.DataFrame, chosen: tuple[HiddenRule, ...], rule_of_result: npt.NDArray[np.int64]
) -> None:
    """Let the first `echo` rule decide on results whose text repeats the arguments.

    The text's first two lines (except short lines) must occur in the arguments. The function
    changes `rule_of_result`. It runs last, and only on results that another rule matches, because
    it compares row by row.
    """
    echoes = [number for number, rule in enumerate(chosen) if rule.echo]
    suspects = np.flatnonzero(rule_of_result < len(chosen))
    if not echoes or not len(suspects):
        return
    text, line = _Results.text.col, pl.col("line")
    is_long = line.str.len_chars() >= MIN_ECHO
    echoed = ~is_long | _Results.arguments.col.str.contains(line, literal=True)
    found = (
        results[[_Results.text.name, _Results.arguments.name]][indices(suspects)]
        .lazy()
        .with_row_index("suspect")
        .drop_nulls()
        .with_columns(
            text=text.str.strip_chars(),
            arguments=_Results.arguments.col.str.replace_all('\\"', '"', literal=True),
        )
        # Few first lines occur in the arguments. Search for the second line only if the first line
        # does.
        .with_columns(line=text.str.head(MAX_ECHO).str.extract(r"^([^\r\n]*)", 1))
        .filter(echoed)
        .with_columns(first_is_long=is_long)
        .with_columns(line=text.str.extract(_SECOND_LINE, 1).str.head(MAX_ECHO).fill_null(""))
        .filter(echoed & (is_long | "first_is_long"))
        .pipe(run_query)
        .get_column("suspect")
        .to_numpy()
    )
    rule_of_result[suspects[found]] = echoes[0]


def _failure_texts(blocks: pl.DataFrame) -> pl.Series:
    """Return the text that reports each failure: messages and status in JSON, or the whole text."""
    lines = _Blocks.json.col.str.extract_all(_MESSAGE_LINES)
    english = lines.list.eval(pl.element().filter(pl.element().str.contains(_ENGLISH)))
    messages = (
        pl.when(english.list.join("").str.contains("_en = ", literal=True))
        .then(english)
        .otherwise(lines)
        .list.join("\n")
        .str.replace_all(r"(?m)^\S+ = \"?(.*?)\"?$", "$1")
    )
    status = pl.lit("\nstatus ") + _Blocks.json.col.str.extract(_STATUS_LINE, 1)
    report = pl.concat_str(messages, status, ignore_nulls=True)
    whole = pl.coalesce(pl.col("text", "structured").str.head(MAX_REPORT))
    text = pl.when(messages != "").then(report.str.head(MAX_REPORT)).otherwise(whole)
    return blocks.lazy().select(text).pipe(run_query).to_series()
