"""The command `mcptally evaluate`: measures the accuracy of the verdict on labelled calls."""

import sys
from pathlib import Path

import click


@click.command(name="evaluate")
@click.argument("labels", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(("table", "json")), default="table", help="Output format."
)
@click.option(
    "--traffic",
    type=click.Path(path_type=Path),
    help="The recordings of the labelled calls, which supply full texts, schemas and context.",
)
@click.option(
    "--cross-validate",
    is_flag=True,
    help="Compute the certainty in hidden errors from the labels of other servers in this file, "
    "instead of taking it from the rules.",
)
def command(labels: Path, form: str, traffic: Path | None, cross_validate: bool) -> None:
    """Measure the accuracy of the verdict on labelled calls.

    Prints, with intervals, the confusion matrix, precision, recall, balanced accuracy, Matthews
    correlation, the share of right values of fault and retryable, calibration in six bins of equal
    size, and the hits of each rule; with --traffic also the accuracy weighted by calls. Lists the
    tools whose verdicts contradict their labels. Compares the verdict with the seed heuristic and
    with "always business". Each line of LABELS is an object with `text` and `verdict` or
    `class`; docs/explanation/verdict.md describes the values.

    \b
    Examples:
      mcptally evaluate labels.jsonl
      mcptally evaluate labels.jsonl --cross-validate --format json
      mcptally evaluate traffic-labels.jsonl --traffic recordings/
    """
    from mcptally.evaluation import evaluate, report

    result = evaluate(labels, traffic=traffic, cross_validate=cross_validate)
    sys.stdout.write(report.as_json(result) + "\n" if form == "json" else report.as_text(result))
