"""Finds validations: requests that ask a server whether a call would be accepted.

A validation is a call to a tool `validate` (with or without a namespace) or to the method
`tools/validate`, whose arguments contain a tool and its arguments. Validations are gathered for the
whole archive, because the validated call may be in another recording.
"""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from mcptally.rules import findings as rule_findings
from mcptally.seeds.validation_protocol.texts import (
    canonical,
    declares_validation,
    is_vague,
    parse_answer,
    parse_request,
    phase,
    schema_differences,
)
from mcptally.seeds.violation import Violation, findings
from mcptally.tables.formatting import formatted
from mcptally.tables.ids import digest
from mcptally.tables.joins import left_join_columns
from mcptally.tables.queries import run_query
from mcptally.tables.stages import TIME, Definitions, DryRuns, Scored
from mcptally.tables.validations import Validations
from mcptally.wire.json_text import json_value

NAME: Final = r"(?i)^(?:.*(?:__|[:./]))?validate$"
"""Matches the name of a tool that validates calls."""

METHOD: Final = "tools/validate"

SLOW_MS: Final = 1000.0
"""Time in milliseconds that a validation should not exceed (document, Questions)."""

PREDICTION_WINDOW_NS: Final = 3600 * 10**9
"""Maximum time in nanoseconds between a validation in another session and a call to which it
applies."""

PREDICTION_COLUMNS: Final = tuple(
    column.name
    for column in (
        *(DryRuns.session, DryRuns.server, DryRuns.tool, DryRuns.arguments_digest),
        *(DryRuns.answered_ns, DryRuns.call_id, DryRuns.valid),
    )
)
"""The columns of validations that `with_validations` reads."""

_CHANGES: Final = (
    "notifications/resources/updated",
    "notifications/resources/list_changed",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
)
"""Notifications with which a server reports a change of its state."""


def gather_validations(calls: pl.DataFrame, params: pl.DataFrame) -> pl.DataFrame:
    """Return the validations among the paired calls of a partition, as `DryRuns`.

    Args:
        calls: the paired calls.
        params: `row` and `params` of the requests whose parameters are not in `calls`.
    """
    rows = candidates(calls, params)
    validations = []
    for row in rows.iter_rows(named=True):
        request, answer = parse_request(row["arguments"]), parse_answer(row["response"])
        if request.tool is None or request.member is None:
            continue
        arguments = canonical(request.arguments)
        validations.append(
            {
                **{name: row[name] for name in ("call_id", "recording", "session", "server")},
                "native": "method" if row["method"] == METHOD else "tool",
                "tool": _without_server(request.tool),
                "arguments": arguments,
                "arguments_digest": digest(arguments),
                "answered_ns": row["reply_ns"],
                "latency_ms": row["latency_ms"],
                "valid": answer.valid,
                "errors": list(answer.errors),
                "warnings": list(answer.warnings),
                "phase": phase([*answer.errors, *answer.warnings]),
            }
        )
    return pl.DataFrame(validations, schema=DryRuns.schema())


def candidates(calls: pl.DataFrame, params: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return the calls that may be validations, without parsing their arguments.

    The arguments of a `tools/validate` request are its parameters, from the row of `params` with
    the same `row`.
    """
    is_method = Scored.method.col == METHOD
    by_name = Scored.tool.col.is_not_null() & Scored.tool.col.str.contains(NAME)
    rows = calls.filter((Scored.dir.col == "c2s") & (is_method | by_name))
    if params is None or METHOD not in rows.get_column(Scored.method.name):
        return rows
    known = params.select("row", "params").drop_nulls()
    return rows.join(known, on="row", how="left", maintain_order="left").with_columns(
        arguments=pl.when(is_method).then("params").otherwise("arguments")
    )


def _without_server(tool: str) -> str:
    """Remove the server from a tool name of the form `server:tool`."""
    return tool.rpartition(":")[2] or tool


def validations_table(
    validations: pl.DataFrame, calls: pl.DataFrame, *, payloads: bool
) -> pl.DataFrame:
    """Build the `validations` table of a partition.

    Args:
        validations: the result of `gather_validations` for the partition.
        calls: the partition's calls, with the `definition` in force.
        payloads: whether to keep the column `arguments`.
    """
    if not validations.height:
        return Validations.frame(validations)
    known = calls.filter(Scored.definition.col.is_not_null(), Scored.tool.col.is_not_null()).select(
        "session", "tool", "definition", asked_ns="ts_ns"
    )
    rows = (
        validations.with_columns(asked_ns=DryRuns.answered_ns.col)
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


def with_validations(calls: pl.DataFrame, validations: pl.DataFrame) -> pl.DataFrame:
    """Add `validated_by` and `validated_as`, from the last validation of each call.

    A validation in the same session takes precedence over a validation in another session of the
    server.

    Args:
        calls: scored calls.
        validations: `PREDICTION_COLUMNS` of the whole archive.
    """
    none = {"validated_by": pl.lit(None, pl.String), "validated_as": pl.lit(None, pl.Boolean)}
    if not validations.height:
        return calls.with_columns(**none)
    answered = validations.filter(
        DryRuns.valid.col.is_not_null(), DryRuns.answered_ns.col.is_not_null()
    )
    if not answered.height:
        return calls.with_columns(**none)
    validated_tools = answered.select("server", "tool").unique()
    requested = calls.filter(Scored.dir.col == "c2s").join(
        validated_tools, on=["server", "tool"], how="semi", nulls_equal=True, maintain_order="left"
    )
    texts = requested.get_column(Scored.arguments.name).fill_null("{}")
    distinct = texts.unique(maintain_order=True)
    digests = pl.DataFrame(
        {"text": distinct, "arguments_digest": [_arguments_digest(text) for text in distinct]},
        schema={"text": pl.String, "arguments_digest": pl.String},
    )
    requested = (
        requested.select("call_id", "session", "server", "tool", "ts_ns", text=texts)
        .join(digests, on="text", how="left", maintain_order="left")
        .sort("ts_ns")
    )
    answered = answered.select(
        *("session", "server", "tool", "arguments_digest"),
        ts_ns="answered_ns",
        validated_by="call_id",
        validated_as="valid",
    ).sort("ts_ns", "validated_by")
    in_session = requested.join_asof(
        answered.drop("server"),
        on="ts_ns",
        by=["session", "tool", "arguments_digest"],
        check_sortedness=False,
    )
    on_server = requested.join_asof(
        answered.drop("session"),
        on="ts_ns",
        by=["server", "tool", "arguments_digest"],
        tolerance=PREDICTION_WINDOW_NS,
        check_sortedness=False,
    )
    found = pl.concat(
        [
            part.drop_nulls("validated_by").select("call_id", *none)
            for part in (in_session, on_server)
        ]
    ).unique("call_id", keep="first", maintain_order=True)
    return left_join_columns(calls, found, "call_id")


def _arguments_digest(text: str) -> str | None:
    value = json_value(text)
    return None if value is None else digest(canonical(value))


# --- findings ---


def validation_findings(
    calls: pl.DataFrame, messages: pl.DataFrame, definitions: pl.DataFrame
) -> list[pl.DataFrame]:
    """Return findings about the calls that are validations."""
    rows = candidates(calls)
    if not rows.height:
        return []
    schemas = rows.select("definition").join(
        definitions.select("definition", "input_schema"),
        on="definition",
        how="left",
        maintain_order="left",
    )
    is_validation = [
        method == METHOD or parse_request(arguments).tool is not None or declares_validation(schema)
        for method, arguments, schema in zip(
            rows.get_column(Scored.method.name),
            rows.get_column(Scored.arguments.name),
            schemas.get_column(Definitions.input_schema.name),
            strict=True,
        )
    ]
    rows = rows.filter(pl.Series(is_validation, dtype=pl.Boolean))
    violations = [
        (number, violation)
        for number, row in enumerate(
            rows.select("method", "arguments", "response", "outcome").iter_rows(named=True)
        )
        for violation in _violations(row)
    ]
    slow = rows.filter(Scored.latency_ms.col > SLOW_MS)
    message = formatted("took {} ms", Scored.latency_ms.col.round(0).cast(pl.Int64))
    return [
        *findings(rows, violations),
        rule_findings.make_findings("validation.slow", slow, message),
        _changes(rows, messages),
    ]


def _violations(row: dict[str, Any]) -> Iterator[Violation]:
    request = parse_request(row["arguments"])
    if row["method"] != METHOD:
        shape = "validation.request_shape"
        if request.tool is None:
            yield Violation("/arguments/tool", "tool is missing or not a string", shape)
        if request.member is None:
            yield Violation("/arguments/arguments", "arguments are missing", shape)
        elif not isinstance(request.arguments, dict):
            message = f"{request.member} is not an object"
            yield Violation(f"/arguments/{request.member}", message, shape)
        if request.member == "parameters":
            message = "the member is called parameters instead of arguments"
            yield Violation("/arguments/parameters", message, "validation.request_parameters")
    if row["outcome"] in ("ok", "hidden_error", "tool_error"):
        answer = parse_answer(row["response"])
        yield from answer.violations
        for text in answer.errors:
            if is_vague(text, request.arguments):
                message = "the error does not say what to change"
                yield Violation("", message, "validation.vague_error", text[:200])


def _changes(rows: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Return findings about change notifications that arrived during a validation."""
    changes = messages.filter(
        Scored.dir.col == "s2c", Scored.method.col.is_in(list(_CHANGES))
    ).select("session", change="method", change_pos="pos")
    during = rows.join(changes, on="session").filter(
        pl.col("change_pos").is_between("pos", "reply")
    )
    message = formatted("the server sent {} during a validation", "change")
    return rule_findings.make_findings("validation.state_change", during, message)


def declaration_findings(listed: pl.DataFrame, definitions: pl.DataFrame) -> list[pl.DataFrame]:
    """Return findings about servers whose validate tool is missing or violates the protocol.

    Args:
        listed: the `Listings` of the whole archive.
        definitions: the `Definitions` of the listed tools.
    """
    known = listed.lazy().select("server", "tool", "definition").unique(maintain_order=True)
    schemas = definitions.lazy().select("definition", "input_schema").unique("definition")
    named = (
        known.filter(Scored.tool.col.str.contains(NAME))
        .join(schemas, on="definition")
        .pipe(run_query)
    )
    texts = named.get_column(Definitions.input_schema.name).to_list()
    differences = [
        (number, difference)
        for number, schema in enumerate(texts)
        if declares_validation(schema) or len(schema_differences(schema)) < 2
        for difference in schema_differences(schema)
    ]
    rows = named[[number for number, _ in differences]].hstack(
        [pl.Series("difference", [text for _, text in differences], dtype=pl.String)]
    )
    is_validation = pl.Series([declares_validation(schema) for schema in texts], dtype=pl.Boolean)
    having = named.lazy().filter(is_validation).select("server")
    without = (
        known.select("server")
        .unique()
        .join(having, on="server", how="anti", nulls_equal=True)
        .sort("server")
    )
    return [
        rule_findings.make_findings(
            "validation.declared_schema", rows, pl.col("difference"), path="/inputSchema"
        ),
        rule_findings.make_findings(
            "validation.missing", without, "the server has no validate tool"
        ),
    ]
