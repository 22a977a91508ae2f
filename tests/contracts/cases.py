"""The cases beside the checkout: inputs with the answers of the programs behind the seeds."""

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / ".." / "shared" / "cases"


def cases(name: str) -> list[Any]:
    """The cases of a file as parameters; one that is skipped where the file is not there."""
    path = FOLDER / name
    if not path.is_file():
        skip = pytest.mark.skip(reason=f"needs ../shared/cases/{name} beside the checkout")
        return [pytest.param({}, marks=skip, id=name)]
    lines = path.read_text(encoding="utf-8").splitlines()
    return [pytest.param(case, id=case["id"]) for case in map(json.loads, lines)]
