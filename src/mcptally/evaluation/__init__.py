"""Measures how accurate verdicts are on labelled calls.

May import `pipeline` and lower layers. `labels` reads labelled files, `measures` computes rates and
intervals, and `report` prints the result. Verdicts are compared with the seed heuristic and with
"always business".
"""

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from mcptally.evaluation import labels, measures
from mcptally.evaluation.labels import DecidedCalls
from mcptally.evaluation.measures import Estimate, Rate
from mcptally.pipeline import run
from mcptally.seeds.inspector import single
from mcptally.store.manifest import live_files, read_manifest
from mcptally.tables.calls import Calls
from mcptally.tables.outcomes import REASONS, Fault
from mcptally.verdict import classify, hidden_errors

MAX_BLOCKS: Final = 32
"""Maximum number of text blocks that are read from a labelled result."""
FAULT_OF_CAUSE: Final[Mapping[str, tuple[str, ...]]] = {
    **{cause: (reason.fault,) for cause, reason in REASONS.items() if reason.fault},
    "network": (Fault.UPSTREAM, Fault.NETWORK),
    "timeout_or_cancel": (Fault.UPSTREAM, Fault.NETWORK),
}
"""Maps each sub-class in the labelling guideline to the values of `fault` that count as correct."""
RETRYABLE_OF_CAUSE: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("validation", "unknown_tool", "not_found", "precondition_state", "conflict"),
        ("after_change",),
    ),
    "user_payload_error": ("after_change",),
    "rate_or_quota": ("after_delay",),
    **dict.fromkeys(
        ("exception_bug", "output_contract", "misconfig_or_missing_dependency"), ("no",)
    ),
    **dict.fromkeys(
        ("network", "timeout_or_cancel", "upstream_5xx_or_malformed", "dependency_down"),
        ("yes", "after_delay"),
    ),
}
"""Maps each sub-class in the labelling guideline to the values of `retryable` that count as
correct."""


@dataclasses.dataclass(frozen=True, slots=True)
class Scorer:
    """How well one method distinguishes business errors from other errors."""

    name: str
    """`mcptally`, `seed heuristic` or `always business`."""
    balanced_accuracy: Estimate
    matthews: Estimate
    precision: Rate
    recall: Rate
    specificity: Rate


@dataclasses.dataclass(frozen=True, slots=True)
class Calibration:
    """How well certainties agree with the shares of correct results."""

    brier: float
    """Brier score (1950): mean squared difference between certainty and correctness, 0 to 1."""
    calibration_error: float
    """Expected calibration error, from 0 to 1."""
    table: list[dict[str, Any]]
    """The reliability table, as `measures.reliability` returns it."""


@dataclasses.dataclass(frozen=True, slots=True)
class VerdictQuality:
    """How well verdicts agree with labels."""

    n: int
    """Number of labelled errors."""
    families: int
    """Number of server families (`labels.family`) that the errors come from."""
    accuracy: Rate
    """Share of errors whose verdict equals the label."""
    confusion: dict[str, dict[str, int]]
    """Maps each label to a map from verdicts to numbers of errors; the key `none` means no verdict.
    """
    classes: dict[str, dict[str, Rate]]
    """Maps each class to its `precision` and `recall`."""
    weighted: list[measures.WeightedShares]
    """The rates with each weighting: by text, by group, by calls and by server family."""
    changing_tools: list[dict[str, Any]]
    """Tools whose most frequent verdict (by calls) differs from their most frequent label. Each row
    has `server`, `tool`, `calls`, `label` and `verdict`."""
    tool_failures: Rate
    """Share of the labelled tool failures that were detected."""
    hidden_causes: Rate
    """Share of correct verdicts among failures that the server did not mark as errors."""
    fault: Rate
    """Share of correct values of `fault` among the errors with a labelled sub-class."""
    retryable: Rate
    """Share of correct values of `retryable` among the errors with a labelled sub-class."""
    scorers: list[Scorer]
    calibration: Calibration
    rules: list[dict[str, Any]]
    """One row per rule that decided a verdict: `rule`, `hits`, `families` and `right`, the rate of
    correct verdicts."""


@dataclasses.dataclass(frozen=True, slots=True)
class HiddenQuality:
    """How well detected hidden errors agree with labels."""

    n: int
    """Number of labelled results that the server did not mark as errors."""
    families: int
    """Number of server families that the results come from."""
    precision: Rate
    recall: Rate
    calibration: Calibration
    """Calibration on the results on which a rule decided; only these have a certainty."""
    rules: list[dict[str, Any]]
    """One row per rule that decided on a result, as in `VerdictQuality`; `(none)` stands for the
    results on which no rule decided."""


@dataclasses.dataclass(frozen=True, slots=True)
class Evaluation:
    """The quality of verdicts and of hidden errors; None if a file has no labels of that kind."""

    verdict: VerdictQuality | None
    hidden: HiddenQuality | None


def evaluate(path: str | Path, *, traffic: str | Path | None = None) -> Evaluation:
    """Measure the accuracy of verdicts and hidden errors on a file of labelled calls.

    Args:
        path: a file in one of the formats that `labels` describes.
        traffic: recordings of the labelled calls, which add full texts, schemas and context.

    Raises:
        UnreadableError: the file or the recordings cannot be read, or a label is invalid.
    """
    labelled = labels.read(Path(path))
    if traffic is not None:
        labelled = labels.with_traffic(labelled, recorded_calls(Path(traffic), labelled))
    return Evaluation(
        verdict=_verdict(verdict_rows(labelled)),
        hidden=_hidden(hidden_rows(labelled)),
    )


def evaluate_rows(rows: pl.DataFrame) -> Evaluation:
    """Measure the accuracy of verdicts in rows that have the columns of `verdict_rows`."""
    return Evaluation(
        verdict=_verdict(rows.filter(DecidedCalls.label.col.is_not_null())), hidden=None
    )


def verdict_rows(labelled: pl.DataFrame) -> pl.DataFrame:
    """Judge the calls that are labelled with a verdict; add `correct` and the columns of `judge`.

    Calls that `labels.with_traffic` matched to a recording keep their recorded verdicts.
    """
    rows = judged(labelled.filter(DecidedCalls.label.col.is_not_null()))
    return rows.with_columns(
        correct=(DecidedCalls.label.col == DecidedCalls.verdict.col).fill_null(value=False)
    )


def judged(labelled: pl.DataFrame) -> pl.DataFrame:
    """Add the columns that `judge` returns to labelled calls.

    As in scoring, a hidden error is judged by the text that reports the failure.
    """
    names = list(classify.Verdicts.columns())
    calls = labelled.drop(names, strict=False)
    reported = hidden_errors.find_hidden_errors(calls)["hidden_text"]
    is_hidden = DecidedCalls.outcome.col == "hidden_error"
    text = pl.coalesce(pl.when(is_hidden).then(reported), "text")
    verdicts = classify.judge(calls.with_columns(error_text=text))
    if "evidence" in labelled.columns:
        recorded = labelled.get_column(DecidedCalls.evidence.name).is_not_null()
        verdicts = verdicts.with_columns(
            pl.when(recorded).then(labelled[name]).otherwise(pl.col(name)).alias(name)
            for name in names
        )
    return labelled.drop(names, strict=False).hstack(verdicts)


def hidden_rows(labelled: pl.DataFrame) -> pl.DataFrame:
    """Find hidden errors among the results labelled for them; add `correct` and `HiddenErrors`."""
    rows = labelled.filter(DecidedCalls.is_hidden.col.is_not_null()).drop(
        list(classify.Verdicts.columns()), strict=False
    )
    found = hidden_errors.find_hidden_errors(rows).rename({"hidden_rule": "rule"})
    return rows.hstack(found).with_columns(
        correct=DecidedCalls.is_hidden.col == DecidedCalls.hidden_error.col
    )


def _verdict(rows: pl.DataFrame) -> VerdictQuality | None:
    if rows.is_empty():
        return None
    columns = (DecidedCalls.label, DecidedCalls.verdict, DecidedCalls.outcome)
    label, verdict, outcome = (rows.get_column(column.name) for column in columns)
    correct, family = (
        rows.get_column(column.name) for column in (DecidedCalls.correct, DecidedCalls.family)
    )
    predictions = {
        "mcptally": (verdict == "business").fill_null(value=False),
        "seed heuristic": _seed(rows),
        "always business": pl.Series([True] * rows.height),
    }
    return VerdictQuality(
        n=rows.height,
        families=family.n_unique(),
        accuracy=_share(correct),
        weighted=measures.weighted_shares(rows),
        changing_tools=_changing_tools(rows),
        tool_failures=_share(correct.filter(label == "tool_failure")),
        hidden_causes=_share(correct.filter(outcome == "hidden_error")),
        fault=_share(_agrees(rows, "fault", FAULT_OF_CAUSE)),
        retryable=_share(_agrees(rows, "retryable", RETRYABLE_OF_CAUSE)),
        confusion=measures.confusion(label, verdict),
        classes={name: _class(label, verdict, name) for name in labels.VERDICTS},
        scorers=[
            _scorer(name, label == "business", predicted, family)
            for name, predicted in predictions.items()
        ],
        calibration=_calibration(rows["certainty"].fill_null(0.0), correct),
        rules=_by_rule(rows),
    )


def _hidden(rows: pl.DataFrame) -> HiddenQuality | None:
    if rows.is_empty():
        return None
    certainty = rows["hidden_certainty"]
    is_hidden = rows.get_column(DecidedCalls.is_hidden.name)
    found = rows.get_column(DecidedCalls.hidden_error.name)
    tp, fn, fp, _ = measures.two_by_two(is_hidden, found)
    decided = certainty.is_not_null()
    return HiddenQuality(
        n=rows.height,
        families=rows.get_column(DecidedCalls.family.name).n_unique(),
        precision=Rate.of(tp, tp + fp),
        recall=Rate.of(tp, tp + fn),
        calibration=_calibration(certainty.filter(decided), is_hidden.filter(decided)),
        rules=_by_rule(rows),
    )


def _share(right: pl.Series) -> Rate:
    return Rate.of(int(right.sum()), len(right))


def _changing_tools(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of `VerdictQuality.changing_tools`, sorted by descending number of calls."""

    def most_frequent(name: str) -> pl.DataFrame:
        counted = rows.group_by("server", "tool", name).agg(DecidedCalls.calls.col.sum())
        return counted.sort("calls", name, descending=[True, False]).unique(
            ["server", "tool"], keep="first"
        )

    keys = ["server", "tool"]
    total = rows.group_by(keys).agg(DecidedCalls.calls.col.sum())
    both = total
    for name in ("label", "verdict"):
        both = both.join(most_frequent(name).select(*keys, name), on=keys, nulls_equal=True)
    return (
        both.filter(DecidedCalls.label.col.ne_missing(DecidedCalls.verdict.col))
        .sort("calls", *keys, descending=[True, False, False])
        .to_dicts()
    )


def _agrees(rows: pl.DataFrame, name: str, expected: Mapping[str, tuple[str, ...]]) -> pl.Series:
    """Return, for each row with a labelled cause, whether the column `name` has an expected value.

    Args:
        rows: `DecidedCalls`.
        name: the column.
        expected: maps each cause to the values that count as correct.
    """
    allowed = DecidedCalls.cause.col.replace_strict(
        {cause: list(values) for cause, values in expected.items()},
        default=None,
        return_dtype=pl.List(pl.String),
    )
    return (
        rows.filter(DecidedCalls.cause.col.is_in(list(expected)))
        .select(allowed.list.contains(pl.col(name)).fill_null(value=False))
        .to_series()
    )


def _class(label: pl.Series, verdict: pl.Series, name: str) -> dict[str, Rate]:
    predicted = (verdict == name).fill_null(value=False)
    tp, fn, fp, _ = measures.two_by_two(label == name, predicted)
    return {"precision": Rate.of(tp, tp + fp), "recall": Rate.of(tp, tp + fn)}


def _scorer(name: str, label: pl.Series, predicted: pl.Series, families: pl.Series) -> Scorer:
    tp, fn, fp, tn = measures.two_by_two(label, predicted)
    estimates = measures.clustered(label, predicted, families)
    return Scorer(
        name,
        estimates["balanced_accuracy"],
        estimates["matthews"],
        precision=Rate.of(tp, tp + fp),
        recall=Rate.of(tp, tp + fn),
        specificity=Rate.of(tn, fp + tn),
    )


def _calibration(certainty: pl.Series, right: pl.Series) -> Calibration:
    table = measures.reliability(certainty, right)
    return Calibration(measures.brier(certainty, right), measures.calibration_error(table), table)


def _by_rule(rows: pl.DataFrame) -> list[dict[str, Any]]:
    grouped = (
        rows.with_columns(DecidedCalls.rule.col.fill_null("(none)"))
        .group_by("rule")
        .agg(
            pl.len(),
            DecidedCalls.correct.col.sum(),
            DecidedCalls.family.col.n_unique().alias("families"),
        )
        .sort("len", "rule", descending=[True, False])
    )
    return [
        {"rule": rule, "hits": n, "families": families, "right": Rate.of(right, n)}
        for rule, n, right, families in grouped.iter_rows()
    ]


def _seed(rows: pl.DataFrame) -> pl.Series:
    """Return, for each row, what the seed heuristic decides according to its document."""
    contexts = (
        {
            "tool": {"name": tool or ""},
            "response": {"isError": True, "content": [{"type": "text", "text": text or ""}]},
        }
        for tool, text in rows.select("tool", "text").iter_rows()
    )
    return pl.Series([bool(single.is_business_error(each)) for each in contexts], dtype=pl.Boolean)


def recorded_calls(archive: Path, labelled: pl.DataFrame) -> pl.DataFrame:
    """Score an archive, and return the calls in the recordings that have labels."""
    with tempfile.TemporaryDirectory(prefix="mcptally-") as folder:
        store = Path(folder) / "store"
        run.score([archive], out=store)
        return (
            pl.scan_parquet(
                live_files(store, read_manifest(store, archive=False))[Calls.name], glob=False
            )
            .filter(
                Calls.recording.col.is_in(
                    labelled.get_column(DecidedCalls.recording.name).drop_nulls().unique().to_list()
                )
            )
            .with_columns(
                structured=Calls.response.col.str.json_path_match("$.structuredContent"),
                later_texts=hidden_errors.later_texts(Calls.response.col, pl.lit(MAX_BLOCKS)),
                calls=pl.len().over("server", "tool", "verdict", "template").cast(pl.Int64),
            )
            .select(*labels.CALL_COLUMNS)
            .collect()
        )
