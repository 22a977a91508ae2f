"""Write the measured counts of every verdict rule, `hits` and `right`, to rules/measured.json.

    python -m tests.benchmarks.calibrate [--check]

Reads the labelled files beside the checkout and our own, tests/verdict/held_out.jsonl. A server
family adds at most one observation to a rule. Families whose texts were read while rules were
written flatter these rules, so they count a fifth; which families those are is decided by a hash
of the name, as it was then, and for our own labels by what the file says.
"""

import argparse
import functools
import hashlib
import json
import sys
from pathlib import Path

import polars as pl

from mcptally import rules as rule_files
from mcptally.evaluation import calibration, hidden_rows, labels, measures, verdict_rows
from mcptally.verdict import classify, confidence, hidden_errors
from tests import corpus

LABELS = (corpus.folder() or corpus.ROOT) / "labels"
SHARED_LABELS = (LABELS / "errors.jsonl", LABELS / "traffic.jsonl")
OUR_LABELS = Path(__file__).resolve().parents[1] / "verdict" / "held_out.jsonl"
MEASURED = Path(rule_files.__file__).with_name("measured.json")
READ_WEIGHT = 0.2


@functools.cache
def ours() -> dict[str, bool]:
    """Families of our own labels, and whether their mistakes were looked at to mend rules."""
    rows = (json.loads(line) for line in OUR_LABELS.read_text(encoding="utf-8").splitlines())
    known = {labels.family(row["server"]): row["part"] == "read" for row in rows}
    shared = set(pl.concat(labels.read(file) for file in SHARED_LABELS)["family"])
    return {family: read for family, read in known.items() if family not in shared}


def was_read(family: str) -> bool:
    """Whether this family's labelled texts were looked at while the rules were written."""
    known = ours().get(family)
    if known is not None:
        return known
    return any(
        hashlib.md5((salt + family).encode(), usedforsecurity=False).digest()[0] % 2 == 0
        for salt in ("a1", "q7")
    )


def labelled() -> pl.DataFrame:
    return pl.concat([labels.read(file) for file in (*SHARED_LABELS, OUR_LABELS)])


def weighted(decided: pl.DataFrame) -> pl.DataFrame:
    weight = pl.when(pl.col("family").map_elements(was_read, return_dtype=pl.Boolean))
    return calibration.counts(decided).with_columns(
        pl.col("hits", "right") * weight.then(READ_WEIGHT).otherwise(1.0)
    )


def verdict_counts() -> dict[str, tuple[float, float]]:
    return calibration.total(weighted(verdict_rows(labelled())))


def hidden_counts() -> dict[str, tuple[float, float]]:
    rows = hidden_rows(labelled())
    silent = [rule.id for rule in hidden_errors.hidden_error_rules() if not rule.failure]
    is_right = pl.col("is_hidden") != pl.col("rule").is_in(silent)
    return calibration.total(weighted(rows.with_columns(correct=is_right)))


def as_json(counted: dict[str, tuple[float, float]]) -> str:
    """The text of measured.json: one line per rule that decided on a labelled call."""
    lines = [
        f'  "{name}": {{"hits": {hits:.4g}, "right": {right:.4g}}}'
        for name, (hits, right) in sorted(counted.items())
        if hits
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if out of date")
    check = parser.parse_args().check
    verdicts, hidden = verdict_counts(), hidden_counts()
    for counted, rules in (
        (verdicts, classify.failure_rules()),
        (hidden, hidden_errors.hidden_error_rules()),
    ):
        percents = confidence.confidence_percent(rules, counted)
        print(f"{len(rules)} rules, confidence {min(percents)} to {max(percents)}")
    new = as_json(verdicts | hidden)
    stale = new != MEASURED.read_text(encoding="utf-8")
    if stale and not check:
        MEASURED.write_text(new, encoding="utf-8")
    rows = verdict_rows(labelled())
    held_out = calibration.held_out(classify.failure_rules(), rows)
    table = measures.reliability(held_out, rows["correct"])
    print(f"cross-validated calibration error {measures.calibration_error(table):.3f}")
    print("changed:", MEASURED.name if stale else "nothing")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
