"""Cases of the corpus: inputs, and the answers of the original programs."""

import json
from typing import Any

import pytest

from tests import corpus


def cases(name: str) -> list[Any]:
    """The cases of a file as parameters of tests; a single skipped case if the file is missing."""
    path = corpus.find(f"cases/{name}")
    if path is None:
        skip = pytest.mark.skip(reason=corpus.missing(f"cases/{name}"))
        return [pytest.param({}, marks=skip, id=name)]
    lines = path.read_text(encoding="utf-8").splitlines()
    return [pytest.param(case, id=case["id"]) for case in map(json.loads, lines)]
