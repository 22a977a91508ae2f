"""The second set of fresh public servers keeps to the rules by which it was recorded.

    fresh2.jsonl         servers as installed
    fresh2_faulty.jsonl  servers with failing upstreams, damaged data, missing programs or settings

Texts are cut to 700 characters. The recordings were not kept. A hash of the family decides whether
it is `read` or `sealed`.
"""

import hashlib
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from mcptally.evaluation import labels

HERE = Path(__file__).parent
FILES = ("fresh2.jsonl", "fresh2_faulty.jsonl")
OTHERS = [
    file
    for file in (*HERE.glob("*.jsonl"), *HERE.glob("labels/*.jsonl"))
    if file.name not in FILES and not file.name.startswith("result_")
]


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def families(rows: list[dict[str, object]]) -> list[str]:
    return [labels.family(str(row.get("server") or row.get("recording"))) for row in rows]


@pytest.fixture(params=FILES)
def rows(request) -> list[dict[str, object]]:
    assert labels.read(HERE / request.param).height
    return lines(HERE / request.param)


def test_a_hash_of_the_family_decides_which_labels_are_sealed(rows):
    for family, row in zip(families(rows), rows, strict=True):
        digest = hashlib.md5(f"n29b{family}".encode(), usedforsecurity=False).digest()
        assert row["part"] == ("read" if digest[0] % 2 else "sealed"), family


def test_no_family_is_in_another_labelled_file(rows):
    known = {family for file in OTHERS for family in families(lines(file))}
    assert not known & set(families(rows))


def test_labels_are_distinct_few_per_family_and_without_places_of_a_machine(rows):
    assert len({row["label"] for row in rows}) == len(rows)
    assert len({(row["recording"], row["id"]) for row in rows}) == len(rows)
    assert max(Counter(families(rows)).values()) <= 8
    assert max(len(str(row["text"])) for row in rows) <= 700
    assert not [row for row in rows if re.search(r"(?<!\w)/(tmp/E|root|work)/", json.dumps(row))]
    for row in rows:
        assert row["hidden"] == (not row["is_error"] and row["verdict"] != "not_error"), row
        assert (row["verdict"] in {"not_error", "ambiguous"}) == ("fault" not in row), row
