"""The table `findings`."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import polars as pl

from mcptally.tables.declaration import Column, Table

Severity = Literal["info", "warning", "error"]
About = Literal["file", "recording", "message", "call", "tool", "server"]


class Findings(Table):
    """One row per violation or oddity."""

    name = "findings"
    key = (
        *("file", "recording", "seq", "index", "rule", "path", "message"),
        *("call_id", "tool", "definition", "server", "session", "line", "evidence"),
    )

    rule = Column(pl.String, "Id of the rule.")
    severity = Column(pl.String, "`info`, `warning` or `error`.")
    about = Column(
        pl.String, "Kind of the subject: `file`, `recording`, `message`, `call`, `tool`, `server`."
    )
    recording = Column(pl.String, "Recording.")
    session = Column(pl.String, "Session.")
    server = Column(pl.String, "Label of the server.")
    tool = Column(pl.String, "Tool that the finding is about.")
    definition = Column(pl.String, "Tool definition.")
    call_id = Column(pl.String, "Call that the finding is about.")
    seq = Column(pl.Int64, "`seq` of the message.")
    index = Column(pl.UInt32, "Position in a JSON-RPC batch.")
    file = Column(pl.String, "Transcript file.")
    line = Column(pl.Int64, "Line in the file, from 1.")
    path = Column(pl.String, "Place within the message (JSON Pointer).")
    message = Column(pl.String, "What is wrong.")
    evidence = Column(pl.String, "The offending value, cut to 500 characters.")


class Finding(NamedTuple):
    """A single finding, for code that does not make findings from columns."""

    rule: str
    severity: Severity
    about: About
    message: str
    file: str | None = None
    line: int | None = None
    recording: str | None = None
    evidence: str | None = None


def findings_frame(rows: Sequence[Finding]) -> pl.DataFrame:
    """Return single findings as a frame with all columns of `Findings`."""
    columns: Iterable[Any] = zip(*rows, strict=True) if rows else [()] * len(Finding._fields)
    schema = Findings.schema()
    data = {
        name: pl.Series(name, values, dtype=schema[name])
        for name, values in zip(Finding._fields, columns, strict=True)
    }
    return Findings.frame(pl.DataFrame(data))
