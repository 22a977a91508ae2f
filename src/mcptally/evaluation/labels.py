"""Reads labelled calls from files in two formats into one table.

In one format, the member `verdict` is the label (business, tool_failure, infrastructure, ambiguous,
not_error). In the other format, the member `class` is the label (protocol_error, business_error,
tool_failure, infra_error, hidden_error, ok, ambiguous).
"""

import json
import re
from pathlib import Path
from typing import Any, Final

import polars as pl

from mcptally.errors import UnreadableError, near, reason
from mcptally.tables.calls import Calls
from mcptally.tables.declaration import Column, StageTable
from mcptally.verdict import classify, error_template

VERDICTS: Final = ("business", "tool_failure", "infrastructure")
"""The classes on which verdicts are measured; calls labelled as ambiguous are excluded."""


class LabelledCalls(StageTable):
    """One row per labelled call."""

    line = Column(pl.Int64, "Line of the label in its file, from 1.")
    server = Column(pl.String, "Server as the label names it.")
    family = Column(pl.String, "Name that all releases and variants of the server share.")
    recording = Calls.recording
    request_id = Calls.request_id
    method = Calls.method
    tool = Calls.tool
    arguments = Calls.arguments
    outcome = Calls.outcome
    error_code = Calls.error_code
    text = Column(pl.String, "Text of the error or result.")
    structured = Column(pl.String, "JSON text of the result's structuredContent.")
    later_texts = Column(pl.List(pl.String), "Texts of the blocks after the first.")
    input_schema_state = Calls.input_schema_state
    label = Column(pl.String, "Verdict of the reader; null without a label for the verdict.")
    is_hidden = Column(
        pl.Boolean, "Whether it is a hidden error; null without a label for hidden errors."
    )
    is_ambiguous = Column(pl.Boolean, "Whether the reader could not determine the cause.")
    cause = Column(pl.String, "Sub-class that the reader gave.")
    calls = Column(
        pl.Int64, "Recorded calls that failed like this one; 1 if their number is not known."
    )


class DecidedCalls(LabelledCalls):
    """Labelled calls, with the verdicts of mcptally."""

    verdict = Calls.verdict
    rule = Calls.rule
    evidence = Calls.evidence
    hidden_error = Column(pl.Boolean, "Whether the result hides an error.")
    correct = Column(pl.Boolean, "Whether that agrees with the label.")


_KEY: Final = ["recording", "request_id", "method"]
CALL_COLUMNS: Final = (
    *(*_KEY, "later_texts"),
    *("outcome", "text", "error_text", "structured", "arguments", "error_code"),
    "input_schema_state",
    *classify.Verdicts.columns(),
    "calls",
)
"""Columns of recorded calls that `with_traffic` reads."""

_CLASSES: Final = {
    "protocol_error": "business",
    "business_error": "business",
    "tool_failure": "tool_failure",
    "infra_error": "infrastructure",
}
_STRINGS: Final = (
    *("server", "tool", "text", "recording", "method", "input_schema_state"),
    *("channel", "wire", "verdict", "class", "reason"),
)
"""Members of a labelled call whose value must be a string or null."""
_VALUES: Final = {
    "verdict": (*VERDICTS, "ambiguous", "not_error"),
    "class": (*_CLASSES, "hidden_error", "ok", "ambiguous"),
}
"""Maps each member that may contain the label to the labels that are valid."""
_VARIANT: Final = re.compile(
    r"-(?:http|sse|stateless|v\d+|nobody|oom|outage|priv|noconfig|old|npx|py|go)(?=-|$)"
)
_GENERIC: Final = re.compile(r"(?:^|[-_. ])(?:mcp|server|the|python|js|node)(?=[-_. ]|$)")
_CODE: Final = re.compile(r"(-?\d{1,18}) (.*)", re.DOTALL)


def read(path: Path) -> pl.DataFrame:
    """Read the labelled calls in a file, as `LabelledCalls`.

    Raises:
        UnreadableError: the file cannot be read, or a line is not a labelled call; the message
            gives the line number.
    """
    rows = []
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{path}: {reason(error)}") from error
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UnreadableError(f"{path}:{number}: {reason(error)}") from error
        if problem := _problem(row):
            raise UnreadableError(f"{path}:{number}: {problem}")
        read_row = _error_row if "verdict" in row else _traffic_row
        fields = _call_fields(row) | read_row(row)
        rows.append({"line": number, **{k: _valid_text(v) for k, v in fields.items()}})
    if not rows:
        raise UnreadableError(f"{path}: the file has no labelled calls")
    calls = LabelledCalls.calls.col
    template = error_template.templates(pl.Series([row["text"] for row in rows], dtype=pl.String))
    group = (LabelledCalls.server.col, LabelledCalls.tool.col, LabelledCalls.label.col, template)
    return pl.DataFrame(rows, schema=LabelledCalls.schema(), orient="row").with_columns(
        calls=pl.when(calls.is_null()).then(pl.lit(1, pl.Int64)).otherwise(calls.sum().over(*group))
    )


def family(server: str) -> str:
    """Return the name that all releases and variants of a server have in common.

    `npm:@scope/mcp-thing-server`, `thing-v1` and `thing-http` belong to one family.
    Cross-validation never splits a family, because all servers of a family return the same texts.
    """
    name = server.lower().split(":", 1)[-1].strip()
    scope, _, name = name.rpartition("/")
    name = _VARIANT.sub("", name)
    bare = _GENERIC.sub("", name).strip("-_. ")
    return bare or scope.strip("@") or name


def _problem(row: Any) -> str | None:
    """Return why the JSON value on a line is not a labelled call, or None if it is valid."""
    if not isinstance(row, dict) or not row.keys() & _VALUES.keys():
        return "is not a labelled call: it must be an object with 'verdict' or 'class'"
    for name in _STRINGS:
        if not isinstance(row.get(name), str | None):
            return f"{name!r} must be a string, not {row[name]!r}"
    code = row.get("code")
    if not (code is None or (isinstance(code, int) and abs(code) < 2**63)):
        return f"'code' must be an integer, not {code!r}"
    calls = row.get("calls")
    if not (calls is None or (type(calls) is int and 0 < calls < 2**31)):
        return f"'calls' must be a positive integer, not {calls!r}"
    for name, values in _VALUES.items():
        if (value := row.get(name)) is not None and value not in values:
            return f"{name} {value!r} is not one of {', '.join(values)}{near(value, values)}"
    return None


def _error_row(row: dict[str, Any]) -> dict[str, Any]:
    is_protocol = row.get("channel") == "protocol"
    is_marked = row.get("is_error") is True or is_protocol
    verdict = row["verdict"]
    is_hidden = None
    if not is_marked and (row.get("hidden") or verdict == "not_error"):
        is_hidden = verdict != "not_error"
    return {
        "outcome": "protocol_error"
        if is_protocol
        else "hidden_error"
        if row.get("hidden")
        else "tool_error",
        "error_code": row.get("code"),
        "text": row.get("text"),
        "input_schema_state": row.get("input_schema_state"),
        "label": verdict if verdict in VERDICTS else None,
        "is_ambiguous": verdict == "ambiguous",
        "cause": row.get("reason"),
        "is_hidden": is_hidden,
    }


def _traffic_row(row: dict[str, Any]) -> dict[str, Any]:
    is_protocol = row.get("wire") == "jsonrpc_error"
    is_marked = is_protocol or row.get("wire") == "isError=true"
    text, code = row.get("text"), None
    if is_protocol and (split := _CODE.fullmatch(text or "")):
        code, text = int(split[1]), split[2]
    return {
        "outcome": "protocol_error" if is_protocol else "tool_error" if is_marked else "ok",
        "error_code": code,
        "text": text,
        "label": _CLASSES.get(row["class"]) if is_marked else None,
        "is_ambiguous": is_marked and row["class"] == "ambiguous",
        "is_hidden": {"hidden_error": True, "ok": False}.get(row["class"])
        if not is_marked
        else None,
    }


def _call_fields(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a label that are the same in both formats."""
    server = row.get("server") or ""
    is_recorded = row.get("recording") is not None
    return {
        "server": server,
        "family": family(server),
        "recording": row.get("recording"),
        "request_id": json.dumps(row["id"]) if is_recorded and row.get("id") is not None else None,
        "method": row.get("method") if is_recorded else None,
        "tool": row.get("tool"),
        "arguments": _arguments(row.get("args")),
        "calls": row.get("calls"),
    }


def _arguments(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _valid_text(value: Any) -> Any:
    """Replace lone surrogates with question marks, because polars cannot store them."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def with_traffic(labelled: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Add full texts, schema states and verdicts from recordings to labelled calls.

    Rows that match no recorded call, or more than one, are left unchanged.

    Args:
        labelled: the result of `read`.
        calls: recorded calls with the columns `CALL_COLUMNS`.
    """
    recorded = (
        calls.with_columns(
            text=pl.when(Calls.outcome.col.is_in(["tool_error", "protocol_error"]))
            .then("error_text")
            .otherwise("text")
        )
        .drop("outcome", "error_text")
        .unique(_KEY, keep="none")
    )
    labelled = labelled.drop("later_texts")
    joined = labelled.join(recorded, on=_KEY, how="left", suffix="_recorded", maintain_order="left")
    return joined.with_columns(
        pl.coalesce(f"{name}_recorded", name).alias(name)
        for name in (
            *("text", "structured", "arguments", "error_code", "input_schema_state", "calls"),
        )
    ).select(*LabelledCalls.columns(), *classify.Verdicts.columns())
