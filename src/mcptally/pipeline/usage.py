"""The `usage` table: what the calls of tools add up to, per session, tool and hour.

Questions about rates read it in the place of ten million calls. queries/_usage.sql says the same
of the calls that filters choose; a test holds the two together.
"""

from typing import Final

import polars as pl

from mcptally.seeds.inspector.model import CLASSIFICATIONS, Rules
from mcptally.seeds.inspector.rows import rows as rows_of
from mcptally.tables.calls import Calls
from mcptally.tables.usage import Usage
from mcptally.verdict.classify import JUDGED

KEYS: Final = ("recording", "session", "server", "tool", "hour")
"""What one row is of; `hour` is the beginning of one, in UTC."""

_ENDED: Final = ("ok", *JUDGED)
_READINGS: Final[dict[str, Rules]] = {"seed": "document", "inspector": "inspector"}


def usage(calls: pl.DataFrame) -> pl.DataFrame:
    """The rows of `Usage` of whole recordings' `Calls` rows."""
    tools = calls.lazy().filter(
        Calls.method.col == "tools/call", Calls.dir.col == "c2s", Calls.tool.col.is_not_null()
    )
    hour = Calls.requested_at.col.dt.truncate("1h").alias("hour")
    sums = {name: flag.cast(pl.UInt32) for name, flag in _flags(_repeated(tools)).items()}
    sums |= _amounts()
    rows = tools.select(
        *(pl.col(name) for name in KEYS[:4]),
        hour,
        Calls.requested_at.col,
        Calls.latency_ms.col,
        "response_tokens",
        *(value.alias(f"sum_{name}") for name, value in sums.items()),
    )
    found = rows.group_by(KEYS).agg(
        pl.len().alias("calls"),
        pl.len().alias("planned"),
        Calls.requested_at.col.min().alias("first_call"),
        Calls.requested_at.col.max().alias("last_call"),
        Calls.latency_ms.col.drop_nulls().alias("latencies_ms"),
        Calls.response_tokens.col.drop_nulls(),
        *(pl.col(f"sum_{name}").sum().alias(name) for name in sums),
    )
    firsts = (
        tools.filter(_HAPPY, _CLASS.is_not_null())
        .sort("requested_at", "seq", "index", nulls_last=True)
        .select(
            *(pl.col(name) for name in KEYS[:4]),
            hour,
            first_happy=_CLASS,
            first_happy_at="requested_at",
            first_happy_seq="seq",
            first_happy_index="index",
        )
        .unique(KEYS, keep="first")
    )
    found = found.join(firsts, on=KEYS, how="left", nulls_equal=True).with_columns(
        pl.when(pl.col(name).list.len() > 0).then(name)
        for name in ("latencies_ms", "response_tokens")
    )
    return Usage.frame(found.collect())


_THROWN: Final = pl.col("inspector_error").is_not_null()
"""Where the original program throws, its own engine calls the scenario executed and broken."""
_CLASS: Final = pl.coalesce(
    "inspector_classification", pl.when(_THROWN).then(pl.lit("broken", pl.String))
)
_CONFIDENCE: Final = pl.coalesce("inspector_confidence", pl.when(_THROWN).then(0.0))
_HAPPY: Final = Calls.scenario.col.fill_null("happy_path") == "happy_path"


def _repeated(tools: pl.LazyFrame) -> dict[str, list[str]]:
    """The calls that stand for their chains: the first repetition of each, and the first to work.

    So a chain counts once, in the hour of that call.
    """
    retries = (
        tools.filter(Calls.attempt_why.col == "retry")
        .select("server", "tool", "attempt_of", "call_id", "requested_at", "outcome")
        .sort("requested_at", "call_id", nulls_last=True)
        .collect()
    )
    chain = ["server", "tool", "attempt_of"]
    return {
        name: rows.unique(chain, keep="first").get_column("call_id").to_list()
        for name, rows in (
            ("retried_calls", retries),
            ("recovered_calls", retries.filter(Calls.outcome.col == "ok")),
        )
    }


def _flags(repeated: dict[str, list[str]]) -> dict[str, pl.Expr]:
    """What is counted: column → which calls."""
    outcome, verdict = Calls.outcome.col, Calls.verdict.col
    ended = outcome.is_in(_ENDED)
    judged = ended & ~verdict.is_in(["infrastructure", "ambiguous"]).fill_null(value=False)
    checked = Calls.input_schema_state.col.is_in(["valid", "invalid"])
    promised = Calls.output_schema_state.col.is_in(["valid", "invalid", "missing_output"])
    executed = pl.col("inspector_classification").is_not_null() | _THROWN
    passed = pl.col("inspector_is_valid") & executed
    logic = (
        pl.col("inspector_evidence").list.join("\n").str.contains("business logic", literal=True)
    )
    outcomes = {
        "ok": "ok",
        "hidden_errors": "hidden_error",
        "tool_errors": "tool_error",
        "protocol_errors": "protocol_error",
        "timeouts": "timeout",
        "no_responses": "no_response",
        "cancelled": "cancelled",
        "input_required": "input_required",
        "tasks": "task",
    }
    verdicts = {
        "business": "business",
        "tool_failures": "tool_failure",
        "infrastructure": "infrastructure",
        "ambiguous": "ambiguous",
    }
    return {
        **{name: outcome == value for name, value in outcomes.items()},
        **{name: verdict == value for name, value in verdicts.items()},
        "judged": judged,
        "judged_errors": judged & verdict.is_in(["tool_failure", "business"]),
        "failed": judged & (verdict == "tool_failure"),
        "ended_infrastructure": ended & (verdict == "infrastructure"),
        "inputs_checked": checked,
        "inputs_invalid": checked & (Calls.input_schema_state.col == "invalid"),
        "outputs_checked": promised,
        "outputs_invalid": promised & (Calls.output_schema_state.col != "valid"),
        "retries": Calls.attempt_why.col == "retry",
        **{name: Calls.call_id.col.is_in(calls) for name, calls in repeated.items()},
        "sized": Calls.response_bytes.col > 0,
        "inspector_judged": pl.col("inspector_confidence").is_not_null(),
        "seed_judged": pl.col("seed_confidence").is_not_null(),
        "seed_results": pl.col("seed_classification").is_not_null(),
        "seed_executed": pl.col("seed_classification").is_not_null(),
        "seed_passed": pl.col("seed_classification").is_not_null() & pl.col("seed_is_valid"),
        "validation_errors": pl.col("seed_is_error") & pl.col("seed_is_business_error"),
        "inspector_executed": executed,
        "inspector_passed": passed,
        "happy": passed & _HAPPY,
        "handled": passed & (Calls.scenario.col == "error_case"),
        "business_logic": (_CLASS == "fully_working") & logic,
        "inspector_results": _CLASS.is_not_null(),
    }


def _amounts() -> dict[str, pl.Expr]:
    """What is summed: column → each call's part."""
    retry = Calls.attempt_why.col == "retry"
    size = Calls.response_bytes.col

    def weighed(name: str, confidence: pl.Expr) -> pl.Expr:
        of = rows_of(_READINGS[name])
        weights = {each: of.class_weight(each) for each in CLASSIFICATIONS}
        return confidence * pl.col(f"{name}_classification").replace_strict(
            weights, default=None, return_dtype=pl.Float64
        )

    spent = Calls.request_bytes.col.fill_null(0) // 4 + Calls.response_tokens.col.fill_null(0)
    return {
        "retry_ms": pl.when(retry).then(Calls.latency_ms.col),
        "retry_tokens": pl.when(retry).then(spent),
        "ln_latency_ms": Calls.latency_ms.col.clip(0.001).log(),
        "ln_response_bytes": pl.when(size > 0).then(size.cast(pl.Float64).log()),
        "seed_weighed": weighed("seed", pl.col("seed_confidence")),
        "inspector_weighed": weighed("inspector", _CONFIDENCE),
        "inspector_confidences": _CONFIDENCE,
    }
