"""Results in many authors' forms are classified correctly, whatever tool returns them.

`result_forms.jsonl` has results as servers of many kinds word them, invented by an author who had
not read the rules: `hidden` is true for one that reports a failure. The others look like failures
and are not: search results, logs, checks that answer no, empty results. Rules were extended after
reading the mistakes, so this file measures no accuracy; it keeps later changes from losing forms.
"""

import json
from pathlib import Path

import polars as pl

from mcptally.evaluation import measures
from mcptally.verdict import find_hidden_errors

FORMS = Path(__file__).with_name("result_forms.jsonl")


def test_reports_of_failures_are_told_from_results_that_look_like_them():
    rows = [json.loads(line) for line in FORMS.read_text(encoding="utf-8").splitlines()]
    results = pl.DataFrame(
        {"tool": row["tool"], "text": row["text"], "arguments": json.dumps(row["arguments"])}
        for row in rows
    )
    is_hidden = pl.Series([row["hidden"] for row in rows])
    tp, fn, fp, tn = measures.two_by_two(is_hidden, find_hidden_errors(results)["hidden_error"])
    assert tp / (tp + fn) >= 0.85
    assert fp / (fp + tn) <= 0.05
