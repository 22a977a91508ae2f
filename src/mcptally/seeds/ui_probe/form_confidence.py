"""Reports `fill_and_submit` calls for a form that was inferred with too little confidence."""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from mcptally.rules import findings as rule_findings
from mcptally.seeds.tool_result import ToolResult
from mcptally.seeds.ui_probe.shapes import as_double
from mcptally.tables.formatting import formatted
from mcptally.tables.stages import Scored
from mcptally.wire.json_text import json_object

TOOLS: Final = ("fill_and_submit", "infer_form")
"""The tools whose calls `low_confidence_findings` reads."""

MAX_LOW_CONFIDENCE: Final = 0.7
"""Confidence up to which a form must not be filled in (document, 4.2)."""


def low_confidence_findings(results: pl.DataFrame) -> pl.DataFrame:
    """Return a finding for each `fill_and_submit` call whose form was inferred too uncertainly.

    The confidence comes from the session's last preceding `infer_form` result for the same form or,
    failing that, for any form.
    """
    fills = results.filter(Scored.tool.col == "fill_and_submit")
    inferred = results.filter(Scored.tool.col == "infer_form")
    if not fills.height or not inferred.height:
        return rule_findings.make_findings("ui_probe.unsure_form", fills.clear(), "")
    answers = [
        _form_and_confidence(tool, response)
        for tool, response in inferred.select("tool", "response").iter_rows()
    ]
    known = (
        inferred.select("session", "pos")
        .with_columns(
            form=pl.Series([form for form, _ in answers], dtype=pl.String),
            form_confidence=pl.Series([number for _, number in answers], dtype=pl.Float64),
        )
        .drop_nulls("form_confidence")
        .sort("pos")
    )
    forms = [_filled_form(text) for text in fills.get_column(Scored.arguments.name)]
    fills = fills.with_columns(form=pl.Series(forms, dtype=pl.String)).sort("pos")
    by_form = (
        fills.drop_nulls("form")
        .join_asof(
            known.drop_nulls("form"), on="pos", by=["session", "form"], check_sortedness=False
        )
        .drop_nulls("form_confidence")
    )
    left = fills.join(by_form.select("call_id"), on="call_id", how="anti")
    by_time = left.join_asof(known.drop("form"), on="pos", by="session", check_sortedness=False)
    low = pl.concat([by_form, by_time], how="diagonal").filter(
        pl.col("form_confidence") <= MAX_LOW_CONFIDENCE
    )
    message = formatted("the form was inferred with confidence {}", "form_confidence")
    return rule_findings.make_findings(
        "ui_probe.unsure_form", low, message, path="/arguments/formSchema"
    )


def _form_and_confidence(tool: str, response: str) -> tuple[str | None, float | None]:
    """Return the name and the confidence of the form in an `infer_form` result."""
    for value in _objects(tool, response):
        data = value.get("data", value)
        confidence = as_double(data.get("confidence")) if isinstance(data, dict) else None
        if confidence is not None:
            return _form_name(data.get("formSchema")), confidence
    return None, None


def _objects(tool: str, response: str) -> Iterator[dict[str, Any]]:
    result = ToolResult.parsed(tool, response)
    for _, value in result.objects() if result else ():
        yield value


def _filled_form(arguments: str | None) -> str | None:
    value = json_object(arguments)
    return _form_name(value.get("formSchema")) if value else None


def _form_name(form: Any) -> str | None:
    """Return a form's selector or name, which identifies the form among those on its page."""
    if not isinstance(form, dict):
        return None
    name = form.get("selector") or form.get("name")
    return name if isinstance(name, str) else None
