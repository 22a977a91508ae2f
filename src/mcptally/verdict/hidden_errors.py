"""Results that are not marked as errors and report a failure all the same."""

import functools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from mcptally import rules as rule_files
from mcptally.verdict import confidence, error_text, json_paths, match
from mcptally.verdict.rule_model import HiddenRule, TextRule, in_order

FILES: Final = ("hidden.toml",)

HEAD: Final = 1200
"""Characters of the text that rules read: a failure is reported first."""
REPORT: Final = 2000
"""Characters kept of the text that reports the failure."""
THRESHOLD: Final = 50.0
"""Confidence from which a result counts as a failure."""
ECHO: Final = 60
"""Characters of the text that must be among the arguments for it to be their echo."""

COLUMNS: Final[dict[str, pl.DataType]] = {
    "hidden_error": pl.Boolean(),
    "hidden_confidence": pl.Float64(),
    "hidden_rule": pl.String(),
    "hidden_text": pl.String(),
}
"""What `hidden` adds. `hidden_rule` may also name what kept a suspicious text silent; then
`hidden_confidence` and `hidden_text` are null."""

USUAL: Final = 0.8
"""Share of a tool's results in one form (JSON, or prose) from which another form is unusual."""
ENOUGH: Final = 5
"""Results of a tool from which its usual form is known."""
SHORTEST_ECHO: Final = 6
"""Characters below which a text is among the arguments by chance."""

_JSON: Final = r"""^\s*(?:\{\s*["}]|\[\s*[\[{"\]\d-])"""
_MESSAGES: Final = (
    r"(?mi)^(?:\S*[.\]])?(?:error\w*|errors|err\w*msg|message|msg|reason|details?|description|exception"
    r"|failure\w*|title|summary|result|text)(?:\[\])?(?:\.\w+)? = \"[^\n]+"
)

INPUTS: Final[dict[str, pl.DataType]] = {
    "server": pl.String(),
    "text": pl.String(),
    "structured": pl.String(),
    "tool": pl.String(),
    "arguments": pl.String(),
}
"""What `hidden` reads, beside `forms` of the whole archive; a column that is missing counts as
null."""


@functools.cache
def rules() -> tuple[HiddenRule, ...]:
    """The rules that come with mcptally, in the order in which they decide."""
    return in_order(rule_files.load(HiddenRule, *FILES))


def hidden(calls: pl.DataFrame, ruleset: Sequence[HiddenRule] | None = None) -> pl.DataFrame:
    """For every result of `calls` whether it reports a failure, row by row in the same order.

    Args:
        calls: results not marked as errors; the columns of `INPUTS`, those it has.
        ruleset: other rules than the ones that come with mcptally.

    Returns:
        the columns of `COLUMNS`.
    """
    chosen = tuple(rules() if ruleset is None else ruleset)
    frame = _frame(calls)
    best = np.full(frame.height, len(chosen), dtype=np.int64)
    for number, mask in _holding(frame, chosen):
        best[mask & (best == len(chosen))] = number
    _silence_echoes(frame, chosen, best)
    said = _table(chosen).select(pl.all().gather(pl.Series(best, dtype=pl.UInt32)))
    failing = said.select(pl.col("hidden_confidence").fill_null(0.0) >= THRESHOLD).to_series()
    rows = failing.arg_true()
    texts = pl.Series([None], dtype=pl.String).new_from_index(0, frame.height)
    return said.with_columns(
        hidden_error=failing, hidden_text=texts.scatter(rows, _report(frame[rows]))
    ).select(*COLUMNS)


def _table(chosen: tuple[HiddenRule, ...]) -> pl.DataFrame:
    """How probable a failure is where each rule decides, and a last row for none."""
    sure = confidence.percent(chosen)
    rows = [
        (each if rule.failure else round(100 - each, 1), rule.id)
        for rule, each in zip(chosen, sure, strict=True)
    ]
    schema = {"hidden_confidence": pl.Float64(), "hidden_rule": pl.String()}
    return pl.DataFrame([*rows, (None, None)], schema=schema, orient="row")


def forms(calls: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Results of each tool in `calls` (`server`, `tool`, `text`), and how many of them are JSON.

    `all` counts results without a text, too; `by` are further columns to count by.
    """
    text = pl.col("text").cast(pl.String)
    return calls.group_by("server", "tool", *by).agg(
        seen=text.is_not_null().sum().cast(pl.Int64),
        json=text.str.contains(_JSON).sum().cast(pl.Int64),
        all=pl.len().cast(pl.Int64),
    )


def usually_json(seen: pl.Expr, json: pl.Expr) -> pl.Expr:
    """Whether so many results of a tool are JSON that another form is unusual."""
    return (seen.fill_null(0) >= ENOUGH) & (json >= USUAL * seen.fill_null(0))


def _frame(calls: pl.DataFrame) -> pl.DataFrame:
    """The inputs, the two views of each result, and whether its form is unusual for its tool.

    The usual form is that of the whole archive where `calls` brings `results_seen` and
    `results_json`, else that of `calls` alone.
    """
    if "results_seen" not in calls.columns:
        have = [name for name in ("server", "tool") if name in calls.columns]
        calls = calls.with_columns(
            pl.lit(None, pl.String).alias(name) for name in ("server", "tool") if name not in have
        )
        known = forms(calls).drop("all").rename({"seen": "results_seen", "json": "results_json"})
        calls = calls.join(
            known, on=["server", "tool"], how="left", maintain_order="left", nulls_equal=True
        )
    columns = INPUTS | {"results_seen": pl.Int64(), "results_json": pl.Int64()}
    frame = calls.select(
        (pl.col(name) if name in calls.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in columns.items()
    )
    is_json = pl.col("text").str.contains(_JSON).fill_null(value=False)
    parsed = pl.when(is_json).then("text").otherwise("structured").alias("parsed")
    usual = usually_json(pl.col("results_seen"), pl.col("results_json"))
    return frame.with_columns(
        prose=pl.when(~is_json).then("text"),
        json=json_paths.lines(frame.select(parsed)["parsed"]),
        unusual=~is_json & usual,
    )


def _holding(
    frame: pl.DataFrame, chosen: tuple[HiddenRule, ...]
) -> Iterator[tuple[int, match.Mask]]:
    """The rules that hold for some result, in order, and for which."""
    found: dict[str, Iterator[match.Rows | None]] = {}
    numbers = {}
    sizes = {}
    for view, column in (("text", "prose"), ("json", "json")):
        distinct = frame.select(column).unique(maintain_order=True).with_row_index("number")
        joined = frame.select(column).join(
            distinct, on=column, how="left", nulls_equal=True, maintain_order="left"
        )
        numbers[view] = joined["number"].cast(pl.Int64).to_numpy()
        whole = pl.col(column).fill_null("")
        texts = distinct.select(text=whole.str.head(HEAD) if view == "text" else whole, whole=whole)
        starts = texts.select(error_text.undecorated(pl.col("text")))["text"]
        size = texts.select(
            chars=pl.col("whole").str.len_chars(),
            lines=pl.col("whole").str.strip_chars().str.count_matches("\n", literal=True) + 1,
        )
        sizes[view] = size
        rules_of = [rule for rule in chosen if rule.view == view]
        lines = None  # of all results it costs something, and hardly a rule asks for it
        if any(rule.where == "first_line" for rule in rules_of):
            lines = texts.select(error_text.first_line(pl.col("text"))).to_series()
        found[view] = iter(
            match.matching(
                rules_of,
                texts["text"],
                starts,
                lines,
                within=functools.partial(_short_enough, size),
            )
        )
    for number, rule in enumerate(chosen):
        rows = next(found[rule.view])
        if rule.echo or (rows is not None and not len(rows)):
            continue
        size = sizes[rule.view]
        of_text = np.zeros(size.height, dtype=np.bool_)
        of_text[slice(None) if rows is None else rows] = True
        if (short := _short_enough(size, rule)) is not None:
            of_text &= short
        mask = of_text[numbers[rule.view]]
        for column, pattern in (("tool", rule.tool), ("arguments", rule.arguments)):
            if pattern:
                mask[mask] = _contains(frame[column], mask, pattern)
        if rule.unusual:
            mask &= frame["unusual"].to_numpy()
        yield number, mask


def _short_enough(size: pl.DataFrame, rule: TextRule) -> match.Mask | None:
    """Which texts have at most the lines and characters that a rule is about; None for all."""
    limits = {"lines": rule.lines, "chars": rule.chars} if isinstance(rule, HiddenRule) else {}
    masks = [(size[name] <= limit).to_numpy() for name, limit in limits.items() if limit]
    return np.logical_and.reduce(masks) if masks else None


def _contains(values: pl.Series, mask: match.Mask, pattern: str) -> match.Mask:
    found: match.Mask = (
        values.filter(pl.Series(mask))
        .str.contains(match.pattern([pattern]))
        .fill_null(value=False)
        .to_numpy()
    )
    return found


def _silence_echoes(
    frame: pl.DataFrame, chosen: tuple[HiddenRule, ...], best: npt.NDArray[np.int64]
) -> None:
    """Where the caller's own words come back, the rule for echoes decides.

    It is asked last, of suspects only, because it compares row by row.
    """
    echoes = [number for number, rule in enumerate(chosen) if rule.echo]
    suspects = np.flatnonzero(best < len(chosen))
    if not echoes or not len(suspects):
        return
    line = error_text.first_line(pl.col("text").str.strip_chars()).str.head(ECHO)
    echoed = (
        frame.select("text", "arguments")[suspects]
        .select(
            pl.col("arguments")
            .str.replace_all('\\"', '"', literal=True)
            .str.contains(line, literal=True)
            & (line.str.len_chars() >= SHORTEST_ECHO)
        )
        .to_series()
        .fill_null(value=False)
        .to_numpy()
    )
    best[suspects[echoed]] = echoes[0]


def _report(frame: pl.DataFrame) -> pl.Series:
    """The words that report the failure: those of a JSON envelope, or the text itself."""
    said = (
        pl.col("json")
        .str.extract_all(_MESSAGES)
        .list.join("\n")
        .str.replace_all(r"(?m)^\S+ = \"?(.*?)\"?$", "$1")
    )
    return frame.select(
        pl.when(said != "").then(said).otherwise(pl.coalesce("text", "structured")).str.head(REPORT)
    ).to_series()
