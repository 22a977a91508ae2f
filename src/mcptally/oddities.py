"""Findings about how a conversation went: made by columns, one rule a row."""

import polars as pl

from mcptally.schema import About, Findings, Severity


def find(messages: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """What is odd about messages and their pairing, before anything is judged."""
    unanswered = pl.col("reply").is_null()
    found = [
        _rows(
            messages.filter(pl.col("kind") == "invalid"),
            "protocol.not_a_message",
            "error",
            "message",
            "neither a request, a notification nor a reply",
        ),
        _rows(
            messages.filter(pl.col("match") == "orphan", pl.col("id").is_not_null()),
            "pairing.orphan_reply",
            "warning",
            "message",
            "a reply to an id that nobody asked with",
            evidence="id",
        ),
        _rows(
            messages.filter(pl.col("match") == "second"),
            "pairing.second_reply",
            "warning",
            "message",
            "another reply to a request that was answered",
            evidence="id",
        ),
        _rows(
            messages.filter(pl.col("match") == "loose"),
            "pairing.id_changed",
            "warning",
            "message",
            "the reply's id equals the request's by value only",
            evidence="id",
        ),
        _rows(
            messages.filter(pl.col("match") == "late"),
            "pairing.late_reply",
            "info",
            "message",
            "a reply to a call that had been cancelled",
        ),
        _rows(
            messages.filter(pl.col("match") == "replay"),
            "pairing.replay",
            "info",
            "message",
            "a message that an SSE resumption sent again",
        ),
        _rows(
            messages.filter(pl.col("batch") & (pl.col("index") == 0)),
            "protocol.batch",
            "info",
            "message",
            "a JSON-RPC batch",
        ),
        _rows(
            calls.filter(unanswered, pl.col("id").str.starts_with("n")),
            "protocol.null_id",
            "warning",
            "call",
            "a request whose id is null can have no reply",
        ),
        _rows(
            calls.filter(
                pl.col("is_error").is_not_null() & ~pl.col("is_error").is_in(["true", "false"])
            ),
            "protocol.is_error_not_boolean",
            "error",
            "call",
            "isError is not a boolean",
            evidence="is_error",
            path="/result/isError",
        ),
    ]
    return pl.concat(found)


def find_judged(calls: pl.DataFrame) -> pl.DataFrame:
    """What is odd about calls once they are validated and judged."""
    found = [
        _rows(
            calls.filter(pl.col("input_schema_state") == "invalid"),
            "schema.arguments_invalid",
            "warning",
            "call",
            pl.coalesce("input_schema_error", pl.lit("the arguments break inputSchema")),
            evidence="arguments",
            path=pl.col("input_schema_path"),
        ),
        _rows(
            calls.filter(
                pl.col("input_schema_state") == "invalid", pl.col("outcome").is_in(["ok"])
            ),
            "schema.invalid_arguments_accepted",
            "info",
            "call",
            "the server accepted arguments that break its schema; it need not enforce it",
        ),
        _rows(
            calls.filter(pl.col("output_schema_state") == "invalid"),
            "schema.output_invalid",
            "error",
            "call",
            pl.coalesce("output_schema_error", pl.lit("the output breaks outputSchema")),
            path=pl.col("output_schema_path"),
        ),
        _rows(
            calls.filter(pl.col("output_schema_state") == "missing_output"),
            "schema.output_missing",
            "warning",
            "call",
            "the tool declares outputSchema and the result has no structured output",
        ),
    ]
    return pl.concat(found)


def _rows(
    frame: pl.DataFrame,
    rule: str,
    severity: Severity,
    about: About,
    message: str | pl.Expr,
    *,
    evidence: str | None = None,
    path: str | pl.Expr | None = None,
) -> pl.DataFrame:
    words = pl.lit(message) if isinstance(message, str) else message
    place = pl.lit(path, pl.String) if path is None or isinstance(path, str) else path
    shown = pl.lit(None, pl.String) if evidence is None else pl.col(evidence).str.head(500)
    return Findings.frame(
        frame.with_columns(
            rule=pl.lit(rule),
            severity=pl.lit(severity),
            about=pl.lit(about),
            message=words,
            path=place,
            evidence=shown,
        )
    )
