"""Dry runs that servers were asked for: recognised, read, and set against the real calls.

A call of a tool `validate` (with or without a namespace), or of the method `tools/validate`, whose
arguments name a tool and its arguments. What such calls say is gathered by partition and known to
the whole archive, because the real call may be in another recording.
"""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from mcptally.rules import findings as rule_findings
from mcptally.seeds.validation_protocol.texts import (
    answered,
    asked,
    canonical,
    declared,
    declares,
    parsed,
    phase,
    vague,
)
from mcptally.seeds.violation import Violation, findings
from mcptally.tables.declaration import TIME
from mcptally.tables.formatting import formatted
from mcptally.tables.ids import digest
from mcptally.tables.joins import left_join_columns
from mcptally.tables.validations import Validations

NAME: Final = r"(?i)^(?:.*(?:__|[:./]))?validate$"
"""How the tool is called."""

METHOD: Final = "tools/validate"

SLOW_MS: Final = 1000.0
"""A validation is to take less (seed 002, Questions)."""

NEAR_NS: Final = 3600 * 10**9
"""Nanoseconds after which a validation in another session says nothing of a call any more."""

SCHEMA: Final = {
    "call_id": pl.String(),
    "recording": pl.String(),
    "session": pl.String(),
    "server": pl.String(),
    "native": pl.String(),
    "tool": pl.String(),
    "arguments": pl.String(),
    "same": pl.String(),
    "answered_ns": pl.Int64(),
    "latency_ms": pl.Float64(),
    "valid": pl.Boolean(),
    "errors": pl.List(pl.String),
    "warnings": pl.List(pl.String),
    "phase": pl.String(),
}
"""What is gathered of each; `same` is equal where `arguments` are, and says nothing else."""

FORETELLING: Final = ("session", "server", "tool", "same", "answered_ns", "call_id", "valid")
"""The columns that `foretold` asks for."""

_STATES: Final = (
    "notifications/resources/updated",
    "notifications/resources/list_changed",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
)
"""What a server says when something changed."""


def gather(calls: pl.DataFrame, asks: pl.DataFrame) -> pl.DataFrame:
    """The validations among the paired calls of a partition: `SCHEMA`.

    `asks` has the parameters of requests (`row`, `params`), where columns do not hold them.
    """
    rows = candidates(calls, asks)
    made = []
    for row in rows.iter_rows(named=True):
        question, answer = asked(row["arguments"]), answered(row["response"])
        if question.tool is None or question.member is None:
            continue
        arguments = canonical(question.arguments)
        made.append(
            {
                **{name: row[name] for name in ("call_id", "recording", "session", "server")},
                "native": "method" if row["method"] == METHOD else "tool",
                "tool": _target(question.tool),
                "arguments": arguments,
                "same": digest(arguments),
                "answered_ns": row["reply_ns"],
                "latency_ms": row["latency_ms"],
                "valid": answer.valid,
                "errors": list(answer.errors),
                "warnings": list(answer.warnings),
                "phase": phase([*answer.errors, *answer.warnings]),
            }
        )
    return pl.DataFrame(made, schema=SCHEMA)


def candidates(calls: pl.DataFrame, asks: pl.DataFrame | None = None) -> pl.DataFrame:
    """Calls that may ask for a validation; `arguments` of the method are its parameters."""
    is_method = pl.col("method") == METHOD
    by_name = pl.col("tool").is_not_null() & pl.col("tool").str.contains(NAME)
    rows = calls.filter((pl.col("dir") == "c2s") & (is_method | by_name))
    if asks is None or not rows.filter(is_method).height:
        return rows
    params = asks.select("row", "params").drop_nulls()
    return rows.join(params, on="row", how="left", maintain_order="left").with_columns(
        arguments=pl.when(is_method).then("params").otherwise("arguments")
    )


def _target(tool: str) -> str:
    """The tool without the server before it (`server:tool`)."""
    return tool.rpartition(":")[2] or tool


def table(mine: pl.DataFrame, calls: pl.DataFrame, *, payloads: bool) -> pl.DataFrame:
    """The `validations` table of a partition; `calls` know which definitions were in force."""
    if not mine.height:
        return Validations.frame(mine)
    known = calls.filter(pl.col("definition").is_not_null(), pl.col("tool").is_not_null()).select(
        "session", "tool", "definition", asked_ns="ts_ns"
    )
    rows = (
        mine.with_columns(asked_ns=pl.col("answered_ns"))
        .sort("asked_ns", nulls_last=True)
        .join_asof(
            known.sort("asked_ns"),
            on="asked_ns",
            by=["session", "tool"],
            strategy="nearest",
            check_sortedness=False,
        )
    )
    if not payloads:
        rows = rows.with_columns(arguments=pl.lit(None, pl.String))
    return Validations.frame(
        rows.with_columns(answered_at=pl.from_epoch("answered_ns", time_unit="ns").cast(TIME))
    )


def foretold(calls: pl.DataFrame, validations: pl.DataFrame) -> pl.DataFrame:
    """`calls` with `validated_by` and `validated_as`: what the last validation said before each."""
    said = validations.filter(pl.col("valid").is_not_null(), pl.col("answered_ns").is_not_null())
    none = {"validated_by": pl.lit(None, pl.String), "validated_as": pl.lit(None, pl.Boolean)}
    if not said.height:
        return calls.with_columns(**none)
    judged = said.select("server", "tool").unique()
    real = calls.filter(pl.col("dir") == "c2s").join(
        judged, on=["server", "tool"], how="semi", nulls_equal=True, maintain_order="left"
    )
    texts = real.get_column("arguments").fill_null("{}")
    distinct = texts.unique(maintain_order=True)
    same = pl.DataFrame(
        {"text": distinct, "same": [_same(text) for text in distinct]},
        schema={"text": pl.String, "same": pl.String},
    )
    real = (
        real.select("call_id", "session", "server", "tool", "ts_ns", text=texts)
        .join(same, on="text", how="left", maintain_order="left")
        .sort("ts_ns")
    )
    said = said.select(
        "session", "server", "tool", "same", ts_ns="answered_ns",
        validated_by="call_id", validated_as="valid",
    ).sort("ts_ns", "validated_by")  # fmt: skip
    mine = real.join_asof(
        said.drop("server"), on="ts_ns", by=["session", "tool", "same"], check_sortedness=False
    )
    theirs = real.join_asof(
        said.drop("session"),
        on="ts_ns",
        by=["server", "tool", "same"],
        tolerance=NEAR_NS,
        check_sortedness=False,
    )
    found = pl.concat(
        [part.drop_nulls("validated_by").select("call_id", *none) for part in (mine, theirs)]
    ).unique("call_id", keep="first", maintain_order=True)
    return left_join_columns(calls, found, "call_id")


def _same(text: str) -> str | None:
    value = parsed(text)
    return None if value is None else digest(canonical(value))


# --- findings ---


def find(
    calls: pl.DataFrame, messages: pl.DataFrame, definitions: pl.DataFrame
) -> list[pl.DataFrame]:
    """What is wrong with the validations among `calls`."""
    rows = candidates(calls)
    if not rows.height:
        return []
    schemas = rows.select("definition").join(
        definitions.select("definition", "input_schema"),
        on="definition",
        how="left",
        maintain_order="left",
    )
    meant = [
        method == METHOD or asked(arguments).tool is not None or declares(schema)
        for method, arguments, schema in zip(
            rows.get_column("method"),
            rows.get_column("arguments"),
            schemas.get_column("input_schema"),
            strict=True,
        )
    ]
    rows = rows.filter(pl.Series(meant, dtype=pl.Boolean))
    told = [
        (number, breach)
        for number, row in enumerate(
            rows.select("method", "arguments", "response", "outcome").iter_rows(named=True)
        )
        for breach in _breaches(row)
    ]
    slow = rows.filter(pl.col("latency_ms") > SLOW_MS)
    words = formatted("took {} ms", pl.col("latency_ms").round(0).cast(pl.Int64))
    return [
        *findings(rows, told),
        rule_findings.findings_of("validation.slow", slow, words),
        _changes(rows, messages),
    ]


def _breaches(row: dict[str, Any]) -> Iterator[Violation]:
    question = asked(row["arguments"])
    if row["method"] != METHOD:
        if question.tool is None:
            yield Violation(
                "/arguments/tool", "tool is missing or no text", "validation.request_shape"
            )
        if question.member is None:
            words = "arguments are missing"
            yield Violation("/arguments/arguments", words, "validation.request_shape")
        elif not isinstance(question.arguments, dict):
            place = f"/arguments/{question.member}"
            yield Violation(place, f"{question.member} is no object", "validation.request_shape")
        if question.member == "parameters":
            words = "parameters instead of arguments"
            yield Violation("/arguments/parameters", words, "validation.request_parameters")
    if row["outcome"] in ("ok", "hidden_error", "tool_error"):
        answer = answered(row["response"])
        yield from answer.breaches
        for text in answer.errors:
            if vague(text, question.arguments):
                words = "the error names nothing that could be mended"
                yield Violation("", words, "validation.vague_error", text[:200])


def _changes(rows: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Notifications of a change that came while a validation ran."""
    said = messages.filter(pl.col("dir") == "s2c", pl.col("method").is_in(list(_STATES))).select(
        "session", change="method", said_at="pos"
    )
    during = rows.join(said, on="session").filter(pl.col("said_at").is_between("pos", "reply"))
    words = formatted("the server said {} while it validated", "change")
    return rule_findings.findings_of("validation.state_change", during, words)


def find_declared(listed: pl.DataFrame, definitions: pl.DataFrame) -> list[pl.DataFrame]:
    """What the archive says of servers' validate tools: declared otherwise, or not at all."""
    known = listed.select("server", "tool", "definition").unique(maintain_order=True)
    schemas = definitions.select("definition", "input_schema").unique("definition")
    theirs = known.filter(pl.col("tool").str.contains(NAME)).join(schemas, on="definition")
    faults = [
        (number, fault)
        for number, schema in enumerate(theirs.get_column("input_schema").to_list())
        if declares(schema) or len(declared(schema)) < 2
        for fault in declared(schema)
    ]
    rows = theirs[[number for number, _ in faults]].hstack(
        [pl.Series("fault", [fault for _, fault in faults], dtype=pl.String)]
    )
    meant = [declares(schema) for schema in theirs.get_column("input_schema").to_list()]
    have = theirs.filter(pl.Series(meant, dtype=pl.Boolean)).select("server").unique()
    without = known.select("server").unique().join(have, on="server", how="anti", nulls_equal=True)
    return [
        rule_findings.findings_of(
            "validation.declared_schema", rows, pl.col("fault"), path="/inputSchema"
        ),
        rule_findings.findings_of(
            "validation.missing", without.sort("server"), "the server has no validate tool"
        ),
    ]
