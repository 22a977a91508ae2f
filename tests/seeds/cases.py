"""Inputs with the answers of the original programs, from `tests/seeds/oracles`."""

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl
import pytest
import zstandard

from mcptally.seeds.inspector import factors
from mcptally.seeds.inspector.model import BusinessDecision

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


FIELDS: Final = {
    field.encode_name: field.name for field in msgspec.structs.fields(BusinessDecision)[1:-1]
}
"""The program's name → the field of a `BusinessDecision`: confidence, threshold and factors."""


def column(field: str) -> str:
    """Return the column of such a field, without the prefix of the interpretation."""
    others = {"confidence": "business_confidence", "threshold": "threshold"}
    return others.get(field, f"factor_{field}")


def decided(text: str, tool: str = "frobnicate") -> dict[str, Any]:
    """Return the row of decisions about an error's text, as the table computes it."""
    row = {"text": text, "tool": tool, "rpc": False}
    asked = pl.DataFrame([row], schema=factors.Examined.schema())
    return factors.decisions(asked).row(0, named=True)
