"""Checks tool results against the Redmine and UI probe documents; builds the UI test tables.

Column expressions select results that may break a contract; each distinct result is parsed once.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import polars as pl

from mcptally.rules import findings as rule_findings
from mcptally.seeds.redmine import content, error_phrases, expected_xml, list_counts
from mcptally.seeds.tool_result import ToolResult
from mcptally.seeds.ui_probe import envelopes, form_confidence, test_runs, tool_data
from mcptally.seeds.ui_probe import tables as ui_tables
from mcptally.seeds.violation import Violation, findings, pointer, text_pointer
from mcptally.tables.arrow import indices
from mcptally.tables.declaration import Column, StageTable, Table
from mcptally.tables.formatting import formatted
from mcptally.tables.queries import run_query
from mcptally.tables.stages import Scored


def _check_blocks(result: ToolResult) -> Iterator[Violation]:
    return content.block_violations(result.content)


def _check_empty_texts(result: ToolResult) -> Iterator[Violation]:
    for number, text in result.texts():
        if not text:
            yield Violation(text_pointer(number), "the text is empty", "content.empty_text")


def _check_xml(result: ToolResult) -> Iterator[Violation]:
    from mcptally.seeds.redmine import xml  # noqa: PLC0415  (few archives have XML)

    for path, text, declared in _texts_with_xml(result):
        if declared or xml.IS_XML.match(text):
            for violation in xml.check(text):
                yield violation._replace(path=path)
    first = next(result.texts(), None)
    if result.expected_xml is not None and first is not None:
        number, text = first
        path = text_pointer(number)
        yield expected_xml.undeclared(text, result.expected_xml, path)
        if text.lstrip().startswith("<"):
            for violation in xml.check(text):
                yield violation._replace(path=path)


def _texts_with_xml(result: ToolResult) -> Iterator[tuple[str, str, bool]]:
    """Yield each text that may be XML, with its JSON Pointer and whether its MIME type is XML."""
    for number, block in enumerate(result.blocks()):
        resource = block.get("resource") if isinstance(block, dict) else None
        if isinstance(resource, dict) and isinstance(resource.get("text"), str):
            mime_type = str(resource.get("mimeType")).partition(";")[0].strip().lower()
            is_xml = mime_type in {"application/xml", "text/xml"} or mime_type.endswith("+xml")
            yield pointer("content", number, "resource", "text"), resource["text"], is_xml
    for number, text in result.texts():
        yield text_pointer(number), text, False


def _check_list_counts(result: ToolResult) -> Iterator[Violation]:
    for path, value in result.objects():
        for message in list_counts.object_messages(value):
            yield Violation(path, message, "content.list_counts")


def _check_error_phrases(result: ToolResult) -> Iterator[Violation]:
    if result.is_error is True:
        return
    for number, text in result.texts():
        if not text.lstrip().startswith("{"):  # a text that is a JSON object is checked below
            yield from error_phrases.message_without_is_error(text, text_pointer(number))
    for path, value in result.objects():
        for name in ("error", "message"):
            member = value.get(name)
            if isinstance(member, str):
                yield from error_phrases.message_without_is_error(member, path + pointer(name))


def _check_envelopes(result: ToolResult) -> Iterator[Violation]:
    for path, value in result.objects():
        if not envelopes.is_envelope(value):
            continue
        yield from envelopes.violations(value, is_error=result.is_error, path=path)
        data = value.get("data")
        if value["success"] is True and result.tool in tool_data.TOOLS and data is not None:
            yield from tool_data.violations(result.tool, data, f"{path}/data")


def _check_runs(result: ToolResult) -> Iterator[Violation]:
    for path, run in _runs(result):
        yield from test_runs.violations(run, path)


def _runs(result: ToolResult) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the JSON Pointer and value of each test run: an object, or an envelope's `data`."""
    for path, value in result.objects():
        for run_path, run in ((path, value), (f"{path}/data", value.get("data"))):
            if isinstance(run, dict) and test_runs.is_run(run):
                yield run_path, run


Check = Callable[[ToolResult], Iterator[Violation]]


class _Results(StageTable):
    """The columns of results that are checked, in addition to columns of `Scored`."""

    call = Column(pl.UInt32, "Number of the call.")
    row = Column(pl.UInt32, "Number of the result.")
    is_result = Column(pl.Boolean, "Whether the reply is a result that was recorded in full.")
    expected_xml = Column(pl.String, "Why the result should be XML; null if it need not be.")
    may_violate = Column(pl.Boolean, "Whether the result is parsed.")


_PLAIN: Final = Scored.blocks_plain.col.fill_null(value=False) & (
    Scored.text_blocks.col == Scored.content_types.col.list.len()
)
"""Selects results that contain only plain text blocks, and so satisfy the contract for blocks."""

_HAS_PHRASE: Final = Scored.text.col.str.head(error_phrases.MAX_CHARS).str.contains(
    error_phrases.PREFILTER
)
_HAS_ODD_BLOCK: Final = (Scored.content_kind.col == "array") & ~_PLAIN

CHECKS: Final[tuple[tuple[pl.Expr, Check], ...]] = (
    (_HAS_ODD_BLOCK, _check_blocks),
    (Scored.response.col.str.contains(r'"text"\s*:\s*""'), _check_empty_texts),
    (
        Scored.response.col.str.contains(r'<\?xml|[/+]xml(?:;[^"]*)?"')
        | _Results.expected_xml.col.is_not_null(),
        _check_xml,
    ),
    (Scored.response.col.str.contains("total_count", literal=True), _check_list_counts),
    (_HAS_PHRASE, _check_error_phrases),
    (Scored.response.col.str.contains(envelopes.PREFILTER), _check_envelopes),
    (Scored.response.col.str.contains(test_runs.PREFILTER, literal=True), _check_runs),
)
"""Pairs of a condition and a check: results that satisfy the condition are parsed and checked.

The check of test runs must be last, because `check_results` also builds tables from the results
that its condition selects."""

SUSPECT: Final = r'"text": ?""|<\?xml|xml"|total_count|"success|runId'
"""Matches every response that a condition on `response` in `CHECKS` selects, and some others.

It is applied to all responses, so that the conditions in `CHECKS` are applied to only a few."""

_MAY_VIOLATE: Final = _Results.is_result.col & (
    pl.when("is_result").then("response").str.contains(SUSPECT)
    | _HAS_ODD_BLOCK
    | _HAS_PHRASE
    | _Results.expected_xml.col.is_not_null()
)

_CALL: Final = (
    *("recording", "session", "server", "tool", "definition", "call_id", "seq", "index"),
    *("file", "line", "pos"),
)
"""Columns that identify the call to which a finding refers."""
_CHECKED: Final = (
    *("response", "text", "is_error", "has_structured_content", "reply_truncated", "outcome"),
    *("content_kind", "content_types", "blocks_plain", "text_blocks", "arguments"),
)


def check_results(
    calls: pl.DataFrame, definitions: pl.DataFrame, forms: pl.DataFrame
) -> tuple[list[pl.DataFrame], dict[type[Table], pl.DataFrame]]:
    """Check the results of calls; return findings, and tables of the UI test runs in the results.

    Args:
        calls: scored calls.
        definitions: `Definitions` of their tools.
        forms: `ResultForms` of their servers.
    """
    is_result = (
        Scored.tool.col.is_not_null()
        & Scored.response.col.is_not_null()
        & Scored.has_structured_content.col.is_not_null()  # null if the reply is a JSON-RPC error
        & ~Scored.reply_truncated.col.fill_null(value=False)
    )
    # Responses may be large, so copy only the responses that are parsed.
    results = calls.select(
        *(*_CALL, *_CHECKED),
        expected_xml.expectations(calls, definitions, forms),
        is_result=is_result,
    ).with_row_index("call")
    responses = results.get_column(Scored.response.name)
    results = (
        results.lazy()
        .with_columns(may_violate=_MAY_VIOLATE.fill_null(value=False))
        .drop("response")
        .filter("is_result")
        .with_row_index("row")
        .pipe(run_query)
    )
    suspects = results[
        indices(np.flatnonzero(results.get_column(_Results.may_violate.name).to_numpy()))
    ]
    suspects = _with_responses(suspects, responses)
    violations: list[tuple[int, Violation]] = []
    runs: list[tuple[int, dict[str, Any]]] = []
    for tool, response, expected, rows, *wanted in _distinct(suspects).iter_rows():
        result = ToolResult.parsed(tool, response, expected)
        if result is None:
            continue
        found = [
            violation
            for is_wanted, (_, check) in zip(wanted, CHECKS, strict=True)
            if is_wanted
            for violation in check(result)
        ]
        violations += [(row, violation) for row in rows for violation in found]
        if wanted[-1]:
            runs += [(row, run) for row in rows for _, run in _runs(result)]
    forms = results.filter(Scored.tool.col.is_in(form_confidence.TOOLS))
    parts = [*findings(results, violations), *_column_findings(results)]
    if forms.height:
        forms = _with_responses(forms, responses)
        parts.append(form_confidence.low_confidence_findings(forms))
    return parts, ui_tables.ui_tables(results, runs)


def _with_responses(rows: pl.DataFrame, responses: pl.Series) -> pl.DataFrame:
    return rows.hstack([responses[rows.get_column(_Results.call.name)].alias("response")])


def _distinct(suspects: pl.DataFrame) -> pl.DataFrame:
    """Return one row per tool and distinct result, with the calls and the checks to run."""
    flags = [
        condition.fill_null(value=False).alias(f"check_{number}")
        for number, (condition, _) in enumerate(CHECKS)
    ]
    keys = ["tool", "response", "expected_xml"]
    selected = suspects.lazy().select(*keys, "row", *flags)
    return (
        selected.filter(pl.any_horizontal(pl.col("^check_.*$")))
        .group_by(keys, maintain_order=True)
        .agg(_Results.row.col, pl.col("^check_.*$").first())
        .pipe(run_query)
    )


def _column_findings(results: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the findings that need no parsing: about empty content and missing isError."""
    empty = results.filter(
        Scored.content_kind.col == "array", Scored.content_types.col.list.len() == 0
    )
    structured = (
        pl.when("has_structured_content")
        .then(pl.lit(", beside structuredContent"))
        .otherwise(pl.lit(""))
    )
    # The default of isError is false in MCP, so only results that report a failure need the member.
    missing = results.lazy().filter(
        Scored.is_error.col.is_null(), Scored.outcome.col == "hidden_error"
    )
    # Calls are in order of arrival, so the finding is about the first call to each tool.
    first = missing.group_by("recording", "tool", maintain_order=True).agg(
        pl.col(*set(_CALL) - {"recording", "tool"}).first(), times=pl.len()
    )
    return [
        rule_findings.make_findings(
            "content.empty",
            empty,
            pl.concat_str(pl.lit("content is empty"), structured),
            path="/content",
        ),
        rule_findings.make_findings(
            "content.is_error_missing",
            first,
            formatted("isError is missing in {} results of this tool in this recording", "times"),
            path="/isError",
        ),
    ]
