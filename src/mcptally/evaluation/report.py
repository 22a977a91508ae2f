"""Formats an evaluation as JSON, or as Markdown tables for the terminal and the docs."""

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from mcptally.evaluation import Calibration, Evaluation, HiddenQuality, VerdictQuality
from mcptally.evaluation.labels import VERDICTS
from mcptally.evaluation.measures import Estimate, Rate, WeightedShares
from mcptally.plural import count
from mcptally.redaction.display import clean_line

WEIGHTINGS: Final = {
    "text": "by text",
    "group": "by group",
    "calls": "by calls",
    "server": "mean of servers",
}
"""Maps the `weighting` of each `WeightedShares` to a column heading."""
MAX_TOOLS: Final = 20
"""Maximum number of tools in the Markdown; the JSON contains all tools."""


def as_json(evaluation: Evaluation) -> str:
    """Format an evaluation as JSON; numbers that cannot be computed are null."""
    return json.dumps(_plain(dataclasses.asdict(evaluation)), indent=1)


def as_text(evaluation: Evaluation) -> str:
    """Format an evaluation as Markdown, in a section for verdicts and one for hidden errors."""
    parts: list[str] = []
    if evaluation.verdict:
        parts += _verdict(evaluation.verdict)
    if evaluation.hidden:
        parts += _hidden(evaluation.hidden)
    if not parts:
        parts = ["This file has no labels for verdicts or hidden errors."]
    return "\n\n".join(parts) + "\n"


def _verdict(quality: VerdictQuality) -> Iterable[str]:
    yield "## Verdict"
    yield (
        f"{count(quality.n, 'labelled error')} of {_families(quality.families)}. "
        f"Accuracy: {_rate(quality.accuracy)}."
    )
    measures = ("balanced accuracy", "Matthews", "precision", "recall", "specificity")
    yield _table(
        ("business against the rest", *measures),
        [
            (
                each.name,
                *(_estimate(value) for value in (each.balanced_accuracy, each.matthews)),
                *(_rate(rate) for rate in (each.precision, each.recall, each.specificity)),
            )
            for each in quality.scorers
        ],
    )
    columns = [*VERDICTS, "ambiguous", "none"]
    yield _table(
        ("label \\ verdict", *columns, "precision", "recall"),
        [
            (
                name,
                *(str(quality.confusion[name][column]) for column in columns),
                _rate(quality.classes[name]["precision"]),
                _rate(quality.classes[name]["recall"]),
            )
            for name in VERDICTS
        ],
    )
    yield "\n".join(
        f"- {what}: {_rate(rate)}."
        for what, rate in (
            ("Tool failures found", quality.tool_failures),
            ("Correct verdicts on hidden errors", quality.hidden_causes),
            ("Correct `fault`", quality.fault),
            ("Correct `retryable`", quality.retryable),
        )
    )
    yield weighted_table(quality.weighted)
    if quality.changing_tools:
        tools = count(len(quality.changing_tools), "tool")
        yield f"The most frequent verdict is not the most frequent label on {tools}:"
        yield _table(
            ("server", "tool", "calls", "label", "verdict"),
            [
                tuple(clean_line(str(row[name])) for name in row)
                for row in quality.changing_tools[:MAX_TOOLS]
            ],
        )
    yield _calibration(quality.calibration, "verdict right")
    if quality.rules:
        yield _rules(quality.rules)


def weighted_table(shares: Sequence[WeightedShares]) -> str:
    """Format shares as a Markdown table with one column per weighting."""
    return _table(
        ("", *(WEIGHTINGS[each.weighting] for each in shares)),
        [
            (what, *(share(getattr(each, name)) for each in shares))
            for name, what in (
                ("accuracy", "right verdicts"),
                ("sure", "right among claims of 95 % and more"),
                ("tool_precision", 'right among verdicts "tool_failure"'),
                ("tool_recall", "tool failures found"),
            )
        ],
    )


def share(value: float) -> str:
    """Format a share with three decimals; NaN becomes `-`."""
    return "-" if math.isnan(value) else f"{value:.3f}"


def _hidden(quality: HiddenQuality) -> Iterable[str]:
    yield "## Hidden errors"
    yield (
        f"{count(quality.n, 'labelled result')} of {_families(quality.families)}. "
        f"Precision {_rate(quality.precision)}, recall {_rate(quality.recall)}."
    )
    yield _calibration(quality.calibration, "is a failure")
    yield _rules(quality.rules)


def _families(n: int) -> str:
    return count(n, "server family", "server families")


def _calibration(quality: Calibration, right: str) -> str:
    table = _table(
        ("certainty", "n", "mean certainty", right),
        [
            (
                f"{row['from']:.1f} to {row['to']:.1f}",
                str(row["n"]),
                f"{row['mean_certainty']:.3f}",
                _rate(row["right"]),
            )
            for row in quality.table
        ],
    )
    return (
        f"Brier score {quality.brier:.3f}, expected calibration error "
        f"{quality.calibration_error:.3f}.\n\n{table}"
    )


def _rules(rules: Sequence[dict[str, Any]]) -> str:
    return _table(
        ("rule", "hits", "families", "right"),
        [
            (clean_line(row["rule"]), str(row["hits"]), str(row["families"]), _rate(row["right"]))
            for row in rules
        ],
    )


def _rate(rate: Rate) -> str:
    if not rate.n:
        return "-"
    return f"{rate.value:.3f} [{rate.low:.3f}, {rate.high:.3f}] ({rate.k}/{rate.n})"


def _estimate(estimate: Estimate) -> str:
    if math.isnan(estimate.value):
        return "-"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value
