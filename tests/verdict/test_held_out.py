"""The rules are accurate and calibrated on servers that were not used to write them.

`held_out.jsonl` has errors and results of public servers from npm and PyPI that are in no other
labelled file. They were recorded without network, with valid, missing, wrong and unusual arguments.
One reader labelled them, without seeing verdicts, after the common guideline. `part` is `read` if
mistakes on that server were used to improve rules, `held` if they were only counted. Texts are cut
to 300 characters; `reason` was not labelled with care. The recordings were not kept.
"""

import json
from pathlib import Path

import polars as pl
import pytest

from mcptally.evaluation import hidden_rows, labels, measures, verdict_rows

pytestmark = pytest.mark.slow

OURS = Path(__file__).with_name("held_out.jsonl")


@pytest.fixture(scope="module")
def held() -> pl.DataFrame:
    rows = OURS.read_text(encoding="utf-8").splitlines()
    lines = [n for n, row in enumerate(rows, start=1) if json.loads(row)["part"] == "held"]
    return labels.read(OURS).filter(pl.col("line").is_in(lines))


def test_business_errors_of_held_out_servers_are_recognised(held):
    rows = verdict_rows(held)
    business = rows["label"] == "business"
    tp, fn, fp, tn = measures.two_by_two(business, rows["verdict"] == "business")
    assert (tp / (tp + fn) + tn / (tn + fp)) / 2 >= 0.90
    assert rows["correct"].mean() >= 0.88


def test_the_certainty_of_verdicts_on_held_out_servers_is_calibrated(held):
    rows = verdict_rows(held)
    table = measures.reliability(rows["certainty"], rows["correct"])
    assert measures.calibration_error(table) <= 0.05


def test_hidden_errors_of_held_out_servers_are_found(held):
    rows = hidden_rows(held)
    tp, fn, fp, _ = measures.two_by_two(rows["is_hidden"], rows["hidden_error"])
    assert tp / (tp + fp) >= 0.90
    assert tp / (tp + fn) >= 0.85
