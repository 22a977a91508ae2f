"""In what form a server's errors come, call by call and server by server.

A client that has to read three forms reads one of them wrong; so more than one is a finding.
"""

from typing import Final

import polars as pl

from mcptally.rules import findings as rule_findings
from mcptally.tables.formatting import formatted

_FAILED: Final = r'^\s*\{[^{}\[\]]{0,300}"(?:success|ok)"\s*:\s*false'
_ERROR_FIRST: Final = r'^\s*\{\s*"error"\s*:\s*(?:"[^"]|\{)'
_SAYS_ERROR: Final = "(?i)^\\W{0,3}(?:error|failed|failure|exception)\\b[^\\n]{0,3}[:\uff1a]"

SCHEMA: Final = {
    "recording": pl.String(),
    "server": pl.String(),
    "shape": pl.String(),
    "calls": pl.UInt32(),
}
"""What `counted` gives; `shape` is one of those that `shape` tells."""


def shape() -> pl.Expr:
    """The form of each call's error, before anything is judged; null where it shows none."""
    text = pl.col("first_text").str.head(400)
    structured = pl.col("structured_content").str.head(400)
    is_json = text.str.contains(r"^\s*[{\[]")
    outcome = pl.col("outcome")
    return (
        pl.when(pl.col("tool").is_null() | (pl.col("dir") != "c2s"))
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
        .when(pl.coalesce(text, structured).str.contains(f"{_FAILED}|{_ERROR_FIRST}"))
        .then(pl.lit("JSON without isError"))
        .when(text.str.contains(_SAYS_ERROR))
        .then(pl.lit("text without isError"))
        .otherwise(pl.lit(None, pl.String))
        .alias("error_shape")
    )


def counted(calls: pl.DataFrame) -> pl.DataFrame:
    """How many errors of each form each server gave, by recording: `SCHEMA`."""
    known = calls.filter(pl.col("error_shape").is_not_null())
    counts = known.group_by("recording", "server", shape="error_shape").agg(calls=pl.len())
    return counts.cast(SCHEMA)  # type: ignore[arg-type]


def find(counts: pl.DataFrame) -> pl.DataFrame:
    """A finding for each server whose errors come in more than one form.

    `counts` are the `SCHEMA` rows of the whole archive, summed or not.
    """
    counts = counts.group_by("server", "shape").agg(pl.col("calls").sum())
    share = pl.col("calls") / pl.col("calls").sum().over("server")
    told = formatted("{} {}%", "shape", (share * 100).round(1))
    servers = (
        counts.sort("server", "calls", "shape", descending=[False, True, False])
        .with_columns(told=told)
        .group_by("server", maintain_order=True)
        .agg(forms=pl.len(), told=pl.col("told").str.join("; "))
        .filter(pl.col("forms") > 1)
    )
    words = formatted("errors come in {} forms", "forms")
    return rule_findings.findings_of("content.error_shapes", servers, words, evidence="told")
