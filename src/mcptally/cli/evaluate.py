"""The command `mcptally evaluate`: measures the verdict's accuracy on labelled calls."""

import json
import sys
from pathlib import Path

import click

from mcptally.cli.options import PATH, REVIEWS, TABLE_OR_JSON
from mcptally.errors import UsageError


@click.command(name="evaluate")
@click.argument("labels", metavar="LABELS|STORE", type=PATH)
@TABLE_OR_JSON
@click.option(
    "--traffic",
    type=PATH,
    help="The recordings of the labelled calls, which supply full texts, schemas and context.",
)
@click.option("--server", metavar="NAME", help="With STORE: use this server's sample.")
@REVIEWS
def command(
    labels: Path,
    form: str,
    traffic: Path | None,
    server: str | None,
    reviews: Path | None,
) -> None:
    """Measure the accuracy of the verdict on labelled calls, or on an archive of your own.

    The command prints, with intervals, the confusion matrix, precision, recall, balanced accuracy,
    Matthews correlation, the share of right values of fault and retryable, calibration in six bins
    of equal size, and the hits of each rule; with --traffic also the accuracy weighted by calls. It
    lists the tools whose verdicts contradict their labels, and compares the verdict with the seed
    heuristic and with "always business". Each line of LABELS is an object with `text` and `verdict`
    or `class`; docs/reference/accuracy.md describes the values.

    With STORE, the labels are the answers to the last sample of `mcptally review STORE --sample N`.
    The command then prints how often the verdict is right on this archive, by server, and which
    rules were wrong about which texts.

    \b
    Examples:
      mcptally evaluate store
      mcptally evaluate labels.jsonl
      mcptally evaluate traffic-labels.jsonl --traffic recordings/
    """
    if (labels / "store.json").exists():
        _evaluate_store(labels, form, server, reviews)
        return
    if server or reviews:
        raise UsageError("--server and --reviews are about a store; labels are given as a file")
    from mcptally.evaluation import evaluate, report

    result = evaluate(labels, traffic=traffic)
    sys.stdout.write(report.as_json(result) + "\n" if form == "json" else report.as_text(result))


def _evaluate_store(path: Path, form: str, server: str | None, reviews: Path | None) -> None:
    from mcptally.analytics.store import open_store
    from mcptally.evaluation import own_archive

    quality = own_archive.evaluate_store(open_store(path), reviews=reviews, server=server)
    if form == "json":
        sys.stdout.write(json.dumps(own_archive.plain(quality), indent=1) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in own_archive.lines(quality)))
