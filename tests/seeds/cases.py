"""Inputs with the answers of the original programs, from `tests/seeds/oracles`."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
import zstandard

ORACLES: Final = Path(__file__).parent / "oracles"


def lines(name: str) -> list[str]:
    """Return the lines of `NAME.jsonl`, which may be compressed."""
    packed = ORACLES / f"{name}.jsonl.zst"
    if packed.exists():
        data = zstandard.ZstdDecompressor().stream_reader(packed.read_bytes()).read()
    else:
        data = (ORACLES / f"{name}.jsonl").read_bytes()
    return data.decode().splitlines()


def cases(name: str) -> list[Any]:
    """Return the cases in a file as parameters of a test."""
    return [pytest.param(case, id=case["id"]) for case in map(json.loads, lines(name))]
