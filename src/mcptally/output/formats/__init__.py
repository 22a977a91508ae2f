"""Defines the formats for `query --format`, `compare --format` and `export --to`.

All three commands offer every row format; `writers` has a function for each. May import `tables`
and `redaction`. This file imports neither, so that `--help` stays fast.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple


class Format(NamedTuple):
    """A format for answers or exports."""

    title: str
    """A description of what the format contains."""
    calls_only: bool = False
    """Whether the format supports only the table `calls`."""


ROWS: Final[Mapping[str, Format]] = {
    "json": Format("JSON: one array, one object per row"),
    "jsonl": Format("JSON Lines: one object per row, without nulls"),
    "csv": Format("CSV that is safe to open in a spreadsheet"),
    "parquet": Format("Parquet, one file"),
    "markdown": Format("a Markdown table"),
}
"""Maps names to row formats."""

ANSWERS: Final[Mapping[str, Format]] = {"table": Format("a table for people"), **ROWS}
"""Formats for answers on stdout."""

ExportFormat = Literal["json", "jsonl", "csv", "parquet", "markdown", "otlp", "otlp-metrics", "har"]
"""Names of the export formats, for completion in editors."""

EXPORTS: Final[Mapping[str, Format]] = {
    **ROWS,
    "otlp": Format("OTLP JSON: spans, one export request per line", calls_only=True),
    "otlp-metrics": Format("OTLP JSON: durations, one export request per line", calls_only=True),
    "har": Format("HAR 1.2, one entry per call", calls_only=True),
}
"""Formats for exports."""
