"""Finds hidden errors: results that are not marked as errors but report a failure."""

import functools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally.verdict import confidence, error_text, json_paths, match
from mcptally.verdict.rule_model import HiddenRule, TextRule, shipped_rules

FILES: Final = ("hidden.toml",)

HEAD: Final = 1200
"""Characters of the text that rules read: a failure is reported at the start."""
MAX_REPORT: Final = 2000
"""Characters kept of the text that reports the failure."""
THRESHOLD: Final = 50.0
"""Lowest confidence, in percent, at which a result counts as a failure."""
MAX_ECHO: Final = 60
"""Characters of the first line that are searched for in the arguments to detect an echo."""

COLUMNS: Final[dict[str, pl.DataType]] = {
    "hidden_error": pl.Boolean(),
    "hidden_confidence": pl.Float64(),
    "hidden_rule": pl.String(),
    "hidden_text": pl.String(),
}
"""The columns that `find_hidden_errors` returns. `hidden_rule` may also name a rule by which the
text is not a failure; then `hidden_text` is null."""

USUAL_SHARE: Final = 0.8
"""A tool usually answers in JSON if at least this share of its results is JSON."""
MIN_RESULTS: Final = 5
"""Results of a tool that must be known before it has a usual form."""
MIN_ECHO: Final = 6
"""Shorter texts may be among the arguments by chance."""

_JSON: Final = r"""^\s*(?:\{\s*["}]|\[\s*[\[{"\]\d-])"""
_MESSAGE_LINES: Final = (
    r"(?mi)^(?:\S*[.\]])?(?:error\w*|errors|err\w*msg|message|msg|reason|details?|description|exception"
    r"|failure\w*|title|summary|result|text)(?:\[\])?(?:\.\w+)? = \"[^\n]+"
)

_TEXT_MEMBER: Final = r'"text":\s*"((?:[^"\\]|\\.){1,600})'
"""The beginning of the text of a content block, in the JSON of a result."""

INPUTS: Final[dict[str, pl.DataType]] = {
    "server": pl.String(),
    "text": pl.String(),
    "later_texts": pl.List(pl.String()),
    "structured": pl.String(),
    "tool": pl.String(),
    "arguments": pl.String(),
}
"""The columns that `find_hidden_errors` reads, besides `results_seen` and `results_json` of the
whole archive; a missing column counts as null."""


@functools.cache
def hidden_error_rules() -> tuple[HiddenRule, ...]:
    """Return the shipped rules about results, in the order in which they decide."""
    return shipped_rules(HiddenRule, *FILES)


def find_hidden_errors(
    calls: pl.DataFrame, ruleset: Sequence[HiddenRule] | None = None
) -> pl.DataFrame:
    """Return whether each result reports a failure: one row per row of `calls`, in the same order.

    Args:
        calls: results not marked as errors, with any of the columns of `INPUTS`.
        ruleset: rules to use in place of the ones that come with mcptally.

    Returns:
        The columns of `COLUMNS`.
    """
    chosen = tuple(hidden_error_rules() if ruleset is None else ruleset)
    results = _with_views(calls)
    rule_of_result = np.full(results.height, len(chosen), dtype=np.int64)
    for number, mask in _matching_results(results, chosen):
        rule_of_result[mask & (rule_of_result == len(chosen))] = number
    _apply_echo_rule(results, chosen, rule_of_result)
    results = _read_later_blocks(results, chosen, rule_of_result)
    decided = _decisions(chosen).select(pl.all().gather(pl.Series(rule_of_result, dtype=pl.UInt32)))
    failing = decided.select(pl.col("hidden_confidence").fill_null(0.0) >= THRESHOLD).to_series()
    rows = failing.arg_true()
    texts = pl.Series([None], dtype=pl.String).new_from_index(0, results.height)
    return decided.with_columns(
        hidden_error=failing, hidden_text=texts.scatter(rows, _failure_texts(results[rows]))
    ).select(*COLUMNS)


def later_texts(response: pl.Expr, count: pl.Expr) -> pl.Expr:
    """Return the beginnings of all text blocks but the first.

    Args:
        response: the JSON of a result.
        count: how many text blocks it has.
    """
    blocks = response.str.extract_all(_TEXT_MEMBER).list.slice(1, count - 1)
    return blocks.list.eval(
        pl.element()
        .str.replace(r'^"text":\s*"', "")
        .str.replace_all(r"\n", "\n", literal=True)
        .str.replace_all(r"\\(.)", "$1")
    )


def _read_later_blocks(
    results: pl.DataFrame, chosen: tuple[HiddenRule, ...], rule_of_result: npt.NDArray[np.int64]
) -> pl.DataFrame:
    """Apply the rules to the later text blocks of results on which no rule decided.

    The first block that reports a failure decides: changes `rule_of_result`, and returns `results`
    with that block in place of the first one.
    """
    undecided = pl.Series(rule_of_result == len(chosen)) & (results["later_texts"].list.len() > 0)
    if not undecided.fill_null(value=False).any():
        return results
    later = (
        results.with_row_index("result")
        .filter(undecided)
        .drop("text", "structured")
        .rename({"later_texts": "text"})
        .explode("text")
    )
    blocks = _with_views(later).with_columns(later["result"])
    rule_of_block = np.full(blocks.height, len(chosen), dtype=np.int64)
    for number, mask in _matching_results(blocks, chosen):
        rule_of_block[mask & (rule_of_block == len(chosen))] = number
    is_failure = np.array([*(rule.failure for rule in chosen), False])
    failing = (
        blocks.with_columns(rule=pl.Series(rule_of_block))
        .filter(pl.Series(is_failure[rule_of_block]))
        .unique("result", keep="first", maintain_order=True)
    )
    rows = failing["result"]
    rule_of_result[rows.to_numpy()] = failing["rule"].to_numpy()
    return results.with_columns(
        results[name].scatter(rows, failing[name]) for name in ("text", "prose", "json")
    )


def _decisions(chosen: tuple[HiddenRule, ...]) -> pl.DataFrame:
    """Return the confidence of a failure per rule, and a last row of nulls: no rule matched."""
    rows = [
        (percent if rule.failure else round(100 - percent, 1), rule.id)
        for rule, percent in zip(chosen, confidence.confidence_percent(chosen), strict=True)
    ]
    schema = {"hidden_confidence": pl.Float64(), "hidden_rule": pl.String()}
    return pl.DataFrame([*rows, (None, None)], schema=schema, orient="row")


def count_result_forms(calls: pl.DataFrame, *by: str, **more: pl.Expr) -> pl.DataFrame:
    """Count the results of each tool in `calls` and how many of them are JSON.

    Args:
        calls: results with `server`, `tool` and `text`.
        by: further columns to group by.
        more: further columns, and the conditions of the results that they count.

    Returns:
        `seen` (results with a text), `json`, `all` and `more` per `server`, `tool` and `by`.
    """
    text = pl.col("text").cast(pl.String)
    return calls.group_by("server", "tool", *by).agg(
        seen=text.is_not_null().sum().cast(pl.Int64),
        json=text.str.contains(_JSON).sum().cast(pl.Int64),
        all=pl.len().cast(pl.Int64),
        **{name: condition.sum().cast(pl.Int64) for name, condition in more.items()},
    )


def usually_json(seen: pl.Expr, json: pl.Expr) -> pl.Expr:
    """Return whether most results of a tool are JSON, so that prose is unusual."""
    return (seen.fill_null(0) >= MIN_RESULTS) & (json >= USUAL_SHARE * seen.fill_null(0))


def _with_views(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the inputs with two views of each result (`prose`, `json`) and `unusual`.

    `unusual` compares with the tool's results in the whole archive if `calls` has `results_seen`
    and `results_json`, else with those in `calls`.
    """
    if "results_seen" not in calls.columns:
        missing = [name for name in ("server", "tool") if name not in calls.columns]
        calls = calls.with_columns(pl.lit(None, pl.String).alias(name) for name in missing)
        known = (
            count_result_forms(calls)
            .drop("all")
            .rename({"seen": "results_seen", "json": "results_json"})
        )
        calls = calls.join(
            known, on=["server", "tool"], how="left", maintain_order="left", nulls_equal=True
        )
    columns = INPUTS | {"results_seen": pl.Int64(), "results_json": pl.Int64()}
    results = calls.select(
        (pl.col(name) if name in calls.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in columns.items()
    )
    is_json = pl.col("text").str.contains(_JSON).fill_null(value=False)
    parsed = pl.when(is_json).then("text").otherwise("structured").alias("parsed")
    usual = usually_json(pl.col("results_seen"), pl.col("results_json"))
    return results.with_columns(
        prose=pl.when(~is_json).then("text"),
        json=json_paths.lines(results.select(parsed)["parsed"]),
        unusual=~is_json & usual,
    )


class _ViewMatches:
    """The distinct texts of one view of the results, and which rules match which of them."""

    def __init__(self, results: pl.DataFrame, column: str, rules: list[HiddenRule]) -> None:
        distinct = results.select(column).unique(maintain_order=True).with_row_index("number")
        numbered = results.select(column).join(
            distinct, on=column, how="left", nulls_equal=True, maintain_order="left"
        )
        self._text_of_result = numbered["number"].cast(pl.Int64).to_numpy()
        whole = pl.col(column).fill_null("")
        read = whole.str.head(HEAD) if column == "prose" else whole
        texts = distinct.select(text=read, whole=whole)
        self._sizes = texts.select(
            chars=pl.col("whole").str.len_chars(),
            lines=pl.col("whole").str.strip_chars().str.count_matches("\n", literal=True) + 1,
        )
        first_lines = None  # cut only where some rule reads them: few do
        if any(rule.where == "first_line" for rule in rules):
            first_lines = texts.select(error_text.first_line(pl.col("text"))).to_series()
        matched = match.match_rules(
            rules,
            texts["text"],
            texts.select(error_text.strip_decoration(pl.col("text")))["text"],
            first_lines,
            within=self._short_enough,
        )
        self._matched = {rule.id: rows for rule, rows in zip(rules, matched, strict=True)}

    def results(self, rule: HiddenRule) -> match.Mask | None:
        """Return a mask of the results whose text `rule` matches; None if there are none."""
        rows = self._matched[rule.id]
        if rows is not None and not len(rows):
            return None
        of_text = np.zeros(self._sizes.height, dtype=np.bool_)
        of_text[slice(None) if rows is None else rows] = True
        if (short := self._short_enough(rule)) is not None:
            of_text &= short
        mask: match.Mask = of_text[self._text_of_result]
        return mask

    def _short_enough(self, rule: TextRule) -> match.Mask | None:
        """Return which texts are within the rule's limits of size; None if it has no limits."""
        limits = {"lines": rule.lines, "chars": rule.chars} if isinstance(rule, HiddenRule) else {}
        masks = [(self._sizes[name] <= limit).to_numpy() for name, limit in limits.items() if limit]
        return np.logical_and.reduce(masks) if masks else None


def _matching_results(
    results: pl.DataFrame, chosen: tuple[HiddenRule, ...]
) -> Iterator[tuple[int, match.Mask]]:
    """Yield, in order, each rule that matches some result, and a mask of these results.

    Rules with `echo` are left out: `_apply_echo_rule` applies them.
    """
    views = {
        view: _ViewMatches(results, column, [rule for rule in chosen if rule.view == view])
        for view, column in (("text", "prose"), ("json", "json"))
    }
    for number, rule in enumerate(chosen):
        if rule.echo or (mask := views[rule.view].results(rule)) is None:
            continue
        for column, pattern in (("tool", rule.tool), ("arguments", rule.arguments)):
            if pattern:
                mask[mask] = _contains(results[column], mask, pattern)
        if rule.unusual:
            mask &= results["unusual"].to_numpy()
        yield number, mask


def _contains(values: pl.Series, mask: match.Mask, pattern: str) -> match.Mask:
    """Return for each value that `mask` selects whether it contains the pattern."""
    found: match.Mask = (
        values.filter(pl.Series(mask))
        .str.contains(match.alternation([pattern]))
        .fill_null(value=False)
        .to_numpy()
    )
    return found


def _apply_echo_rule(
    results: pl.DataFrame, chosen: tuple[HiddenRule, ...], rule_of_result: npt.NDArray[np.int64]
) -> None:
    """Let the first `echo` rule decide where the text repeats the caller's own words.

    Changes `rule_of_result`. Runs last and only on results that another rule matches, because it
    compares row by row.
    """
    echoes = [number for number, rule in enumerate(chosen) if rule.echo]
    suspects = np.flatnonzero(rule_of_result < len(chosen))
    if not echoes or not len(suspects):
        return
    line = error_text.first_line(pl.col("text").str.strip_chars()).str.head(MAX_ECHO)
    echoed = (
        results.select("text", "arguments")[suspects]
        .select(
            pl.col("arguments")
            .str.replace_all('\\"', '"', literal=True)
            .str.contains(line, literal=True)
            & (line.str.len_chars() >= MIN_ECHO)
        )
        .to_series()
        .fill_null(value=False)
        .to_numpy()
    )
    rule_of_result[suspects[echoed]] = echoes[0]


def _failure_texts(results: pl.DataFrame) -> pl.Series:
    """Return the text that reports each failure: the messages inside JSON, or the whole text."""
    messages = (
        pl.col("json")
        .str.extract_all(_MESSAGE_LINES)
        .list.join("\n")
        .str.replace_all(r"(?m)^\S+ = \"?(.*?)\"?$", "$1")
    )
    whole = pl.coalesce("text", "structured")
    return results.select(
        pl.when(messages != "").then(messages).otherwise(whole).str.head(MAX_REPORT)
    ).to_series()
