"""Labelled files: both vocabularies, read into one table of calls with their labels.

One vocabulary says `verdict` (business, tool_failure, infrastructure, ambiguous, not_error), the
other `class` (protocol_error, business_error, tool_failure, infra_error, hidden_error, ok,
ambiguous).
"""

import json
import re
from pathlib import Path
from typing import Any, Final

import polars as pl

from mcptally.errors import UnreadableError, near

VERDICTS: Final = ("business", "tool_failure", "infrastructure")
"""What a verdict is measured against; what a label calls ambiguous is left out."""

COLUMNS: Final[dict[str, pl.DataType]] = {
    "line": pl.Int64(),
    "server": pl.String(),
    "family": pl.String(),
    "recording": pl.String(),
    "request_id": pl.String(),
    "method": pl.String(),
    "tool": pl.String(),
    "arguments": pl.String(),
    "outcome": pl.String(),
    "error_code": pl.Int64(),
    "text": pl.String(),
    "structured": pl.String(),
    "input_schema_state": pl.String(),
    "label": pl.String(),
    "is_hidden": pl.Boolean(),
}
"""`label` is null where a row says nothing about the verdict, `is_hidden` where it says nothing
about hidden errors."""

_KEY: Final = ["recording", "request_id", "method"]
CALL_COLUMNS: Final = (
    *_KEY,
    *("outcome", "text", "error_text", "structured", "arguments", "error_code"),
    "input_schema_state",
)
"""What `with_traffic` reads of recorded calls."""

_CLASSES: Final = {
    "protocol_error": "business",
    "business_error": "business",
    "tool_failure": "tool_failure",
    "infra_error": "infrastructure",
}
_TEXTS: Final = (
    *("server", "tool", "text", "recording", "method", "input_schema_state"),
    *("channel", "wire", "verdict", "class"),
)
"""Members of a label that are strings, or null."""
_WORDS: Final = {
    "verdict": (*VERDICTS, "ambiguous", "not_error"),
    "class": (*_CLASSES, "hidden_error", "ok", "ambiguous"),
}
"""What a label may say, in either vocabulary."""
_HOW_RUN: Final = re.compile(
    r"-(?:http|sse|stateless|v\d+|nobody|oom|outage|priv|noconfig|old|npx|py|go)(?=-|$)"
)
_NAMELESS: Final = re.compile(r"(?:^|[-_. ])(?:mcp|server|the|python|js|node)(?=[-_. ]|$)")
_CODE: Final = re.compile(r"(-?\d{1,18}) (.*)", re.DOTALL)


def read(path: Path) -> pl.DataFrame:
    """The labelled calls of `path`, with the columns of `COLUMNS`.

    Raises:
        UnreadableError: the file cannot be read, or a line is not a labelled call; it says which.
    """
    rows = []
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableError(f"{path}: cannot be read as a labelled file: {error}") from error
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UnreadableError(f"{path}:{number}: not JSON: {error}") from error
        if wrong := _wrong(row):
            raise UnreadableError(f"{path}:{number}: {wrong}")
        read_row = _error_row if "verdict" in row else _traffic_row
        rows.append({"line": number, **{k: _text(v) for k, v in read_row(row).items()}})
    if not rows:
        raise UnreadableError(f"{path}: no labelled calls in it")
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def family(server: str) -> str:
    """The name that releases, registries and ways of running one server share.

    `npm:@scope/mcp-thing-server`, `thing-v1` and `thing-http` are one family: labels of one must
    not help to judge another.
    """
    name = server.lower().split(":", 1)[-1].strip()
    scope, _, name = name.rpartition("/")
    name = _HOW_RUN.sub("", name)
    bare = _NAMELESS.sub("", name).strip("-_. ")
    return bare or scope.strip("@") or name


def _wrong(row: Any) -> str | None:
    """Why the JSON value of a line is no labelled call; None: it is one."""
    if not isinstance(row, dict) or not row.keys() & _WORDS.keys():
        return "a labelled call is an object with 'verdict' or 'class'"
    for name in _TEXTS:
        if not isinstance(row.get(name), str | None):
            return f"{name!r} is a string, and not {row[name]!r}"
    code = row.get("code")
    if not (code is None or (isinstance(code, int) and abs(code) < 2**63)):
        return f"'code' is a number of JSON-RPC, and not {code!r}"
    for name, words in _WORDS.items():
        if (said := row.get(name)) is not None and said not in words:
            return f"{name} {said!r} is not one of {', '.join(words)}{near(said, words)}"
    return None


def _error_row(row: dict[str, Any]) -> dict[str, Any]:
    is_protocol = row.get("channel") == "protocol"
    is_marked = row.get("is_error") is True or is_protocol
    verdict = row["verdict"]
    is_hidden = None
    if not is_marked and (row.get("hidden") or verdict == "not_error"):
        is_hidden = verdict != "not_error"
    return {
        "server": row.get("server") or "",
        "family": family(row.get("server") or ""),
        "tool": row.get("tool"),
        "arguments": _arguments(row.get("args")),
        "outcome": "protocol_error"
        if is_protocol
        else "hidden_error"
        if row.get("hidden")
        else "tool_error",
        "error_code": row.get("code"),
        "text": row.get("text"),
        "input_schema_state": row.get("input_schema_state"),
        "label": verdict if verdict in VERDICTS else None,
        "is_hidden": is_hidden,
    }


def _traffic_row(row: dict[str, Any]) -> dict[str, Any]:
    is_protocol = row.get("wire") == "jsonrpc_error"
    is_marked = is_protocol or row.get("wire") == "isError=true"
    text, code = row.get("text"), None
    if is_protocol and (split := _CODE.fullmatch(text or "")):
        code, text = int(split[1]), split[2]
    return {
        "server": row.get("server") or "",
        "family": family(row.get("server") or ""),
        "recording": row.get("recording"),
        "request_id": None if row.get("id") is None else json.dumps(row["id"]),
        "method": row.get("method"),
        "tool": row.get("tool"),
        "arguments": _arguments(row.get("args")),
        "outcome": "protocol_error" if is_protocol else "tool_error" if is_marked else "ok",
        "error_code": code,
        "text": text,
        "label": _CLASSES.get(row["class"]) if is_marked else None,
        "is_hidden": {"hidden_error": True, "ok": False}.get(row["class"])
        if not is_marked
        else None,
    }


def _arguments(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _text(value: Any) -> Any:
    """Lone surrogates cannot be stored; they become question marks."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def with_traffic(labelled: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """`labelled` with whole texts and schema states of the recorded calls it names.

    A label that names no call, or more than one, keeps what the file says.

    Args:
        labelled: as `read` gives it.
        calls: recorded calls, with the columns `CALL_COLUMNS`.
    """
    whole = (
        calls.with_columns(
            text=pl.when(pl.col("outcome").is_in(["tool_error", "protocol_error"]))
            .then("error_text")
            .otherwise("text")
        )
        .drop("outcome", "error_text")
        .unique(_KEY, keep="none")
    )
    joined = labelled.join(whole, on=_KEY, how="left", suffix="_whole", maintain_order="left")
    return joined.with_columns(
        pl.coalesce(f"{name}_whole", name).alias(name)
        for name in ("text", "structured", "arguments", "error_code", "input_schema_state")
    ).select(*COLUMNS)
