"""A result that has the structure of a failure is a hidden error, however it is worded.

`result_structures.jsonl` has results in the structures that servers, APIs and runtimes use for
failures, and results that resemble them. A row with a `source` has the form that this server
writes. The others follow specifications, such as RFC 9457, and the output of runtimes. Rules were
extended after reading the mistakes, so this file measures no accuracy.
"""

import json
from pathlib import Path

import polars as pl
import pytest

from mcptally.verdict import find_hidden_errors

ROWS = [
    json.loads(line)
    for line in Path(__file__)
    .with_name("result_structures.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]


@pytest.mark.parametrize("structure", dict.fromkeys(row["structure"] for row in ROWS))
def test_the_structure_of_a_result_says_whether_it_failed(structure: str):
    rows = [row for row in ROWS if row["structure"] == structure]
    found = find_hidden_errors(
        pl.DataFrame({"tool": f"get_thing_{n}", "text": row["text"]} for n, row in enumerate(rows))
    )["hidden_error"]
    wrong = [
        row["text"] for row, hidden in zip(rows, found, strict=True) if hidden != row["hidden"]
    ]
    assert not wrong
