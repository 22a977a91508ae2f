"""Determines the forms in which servers report errors: JSON-RPC error, isError with text, ….

A server that uses more than one form gets a finding, because clients must parse each form.
"""

from typing import Final

import polars as pl

from mcptally.rules import findings as rule_findings
from mcptally.tables.arrow import matches
from mcptally.tables.formatting import formatted
from mcptally.tables.queries import run_query
from mcptally.tables.stages import ErrorForms, GatheredCalls

_FAILED: Final = r'^\s*\{[^{}\[\]]{0,300}"(?:success|ok)"\s*:\s*false'
_ERROR_FIRST: Final = r'^\s*\{\s*"error"\s*:\s*(?:"[^"]|\{)'
_SAYS_ERROR: Final = "(?i)^\\W{0,3}(?:error|failed|failure|exception)\\b[^\\n]{0,3}[:\uff1a]"


def error_form() -> pl.Expr:
    """Return an expression for the form of each call's error, `error_shape`; null without an error.

    The expression uses only columns of paired calls, because hidden errors are not known before
    judging.
    """
    text = GatheredCalls.first_text.col.str.head(400)
    structured = GatheredCalls.structured_content.col.str.head(400)
    is_json = text.str.contains(r"^\s*[{\[]")
    outcome = GatheredCalls.outcome.col
    return (
        pl.when(GatheredCalls.tool.col.is_null() | (GatheredCalls.dir.col != "c2s"))
        .then(pl.lit(None, pl.String))
        .when(outcome == "protocol_error")
        .then(pl.lit("JSON-RPC error"))
        .when((outcome == "tool_error") & structured.is_not_null())
        .then(pl.lit("isError, structuredContent"))
        .when((outcome == "tool_error") & is_json)
        .then(pl.lit("isError, JSON"))
        .when((outcome == "tool_error") & (text.str.len_chars() > 0))
        .then(pl.lit("isError, text"))
        .when(outcome == "tool_error")
        .then(pl.lit("isError, nothing"))
        .when(matches(pl.coalesce(text, structured), f"{_FAILED}|{_ERROR_FIRST}"))
        .then(pl.lit("JSON without isError"))
        .when(matches(text, _SAYS_ERROR))
        .then(pl.lit("text without isError"))
        .otherwise(pl.lit(None, pl.String))
        .alias("error_shape")
    )


def count_error_forms(calls: pl.DataFrame) -> pl.DataFrame:
    """Count the errors of each form for each recording and server, as `ErrorForms`."""
    known = calls.lazy().filter(GatheredCalls.error_shape.col.is_not_null())
    counts = known.group_by("recording", "server", shape="error_shape").agg(calls=pl.len())
    return counts.cast(ErrorForms.schema()).pipe(run_query)


def form_findings(counts: pl.DataFrame) -> pl.DataFrame:
    """Return a finding for each server that reports errors in more than one form.

    Args:
        counts: the `ErrorForms` rows of the whole archive; rows may be summed over recordings.
    """
    sums = counts.lazy().group_by("server", "shape").agg(pl.col("calls").sum())
    share = pl.col("calls") / pl.col("calls").sum().over("server")
    form_share = formatted("{} {}%", "shape", (share * 100).round(1))
    servers = (
        sums.sort("server", "calls", "shape", descending=[False, True, False])
        .with_columns(form_share=form_share)
        .group_by("server", maintain_order=True)
        .agg(forms=pl.len(), form_shares=pl.col("form_share").str.join("; "))
        .filter(pl.col("forms") > 1)
    )
    message = formatted("errors have {} forms", "forms")
    return rule_findings.make_findings(
        "content.error_shapes", servers, message, evidence="form_shares"
    )
