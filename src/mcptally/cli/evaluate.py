"""`mcptally evaluate`: the verdict's accuracy on a labelled file."""

import sys
from pathlib import Path

import click


@click.command(name="evaluate")
@click.argument("labels", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(("table", "json")), default="table", help="How to print."
)
@click.option(
    "--traffic",
    type=click.Path(path_type=Path),
    help="Recordings that the labels name, for whole texts, schemas and context.",
)
@click.option(
    "--cross-validate",
    is_flag=True,
    help="Take confidence from the labels of other servers in this file, not from the rules.",
)
def command(labels: Path, form: str, traffic: Path | None, cross_validate: bool) -> None:
    """Measure the verdict on a labelled file.

    Prints the confusion matrix, precision, recall, balanced accuracy, Matthews correlation,
    calibration and every rule's hits, with intervals, beside the seed heuristic and "always
    business". Each line of LABELS is an object with `text` and `verdict` (or `class`); the
    vocabularies are described in docs/explanation/verdict.md.

    \b
    Examples:
      mcptally evaluate labels.jsonl
      mcptally evaluate labels.jsonl --cross-validate --format json
      mcptally evaluate traffic-labels.jsonl --traffic recordings/
    """
    from mcptally.evaluation import evaluate, report

    result = evaluate(labels, traffic=traffic, cross_validate=cross_validate)
    sys.stdout.write(report.as_json(result) + "\n" if form == "json" else report.as_text(result))
