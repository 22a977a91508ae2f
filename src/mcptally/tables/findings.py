"""Declares the table `findings`."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mcptally.tables.column_types import INT64, STRING, UINT32
from mcptally.tables.declaration import Column, Table

if TYPE_CHECKING:
    import polars as pl

Severity = Literal["info", "warning", "error"]
About = Literal["file", "recording", "message", "call", "tool", "server"]


class Findings(Table):
    """One row per violation of a rule or unusual fact."""

    name = "findings"
    key = (
        *("file", "recording", "seq", "index", "rule", "path", "message"),
        *("call_id", "tool", "definition", "server", "session", "line", "evidence"),
    )

    rule = Column(STRING, "Id of the rule.")
    severity = Column(STRING, "`info`, `warning` or `error`.")
    about = Column(
        STRING, "Kind of the subject: `file`, `recording`, `message`, `call`, `tool`, `server`."
    )
    recording = Column(STRING, "Recording.")
    session = Column(STRING, "Session.")
    server = Column(STRING, "Label of the server.")
    tool = Column(STRING, "Tool that the finding is about.")
    definition = Column(STRING, "Tool definition.")
    call_id = Column(STRING, "Call that the finding is about.")
    seq = Column(INT64, "`seq` of the message.")
    index = Column(UINT32, "Position in a JSON-RPC batch.")
    file = Column(STRING, "Transcript file.")
    line = Column(INT64, "Line in the file, from 1.")
    path = Column(STRING, "Place within the message (JSON Pointer).")
    message = Column(STRING, "What is wrong.")
    evidence = Column(STRING, "The offending value, cut to 500 characters.")


class Finding(NamedTuple):
    """A single finding, for code that reports findings one at a time instead of building frames."""

    rule: str
    severity: Severity
    about: About
    message: str
    file: str | None = None
    line: int | None = None
    recording: str | None = None
    evidence: str | None = None


def findings_frame(rows: Sequence[Finding]) -> "pl.DataFrame":
    """Build a frame with all columns of `Findings` from single findings."""
    import polars as pl  # noqa: PLC0415  (see `column_types`)

    columns: Iterable[Any] = zip(*rows, strict=True) if rows else [()] * len(Finding._fields)
    schema = Findings.schema()
    data = {
        name: pl.Series(name, values, dtype=schema[name])
        for name, values in zip(Finding._fields, columns, strict=True)
    }
    return Findings.frame(pl.DataFrame(data))
