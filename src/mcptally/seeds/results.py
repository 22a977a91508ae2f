"""Results of tools against the contracts of content, envelopes and UI tests: findings, UI tables.

Columns say which results are worth reading; each distinct one of those is parsed once.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import polars as pl

from mcptally.rules import findings as rule_findings
from mcptally.seeds.redmine import content, list_counts, xml
from mcptally.seeds.ui_probe import envelopes, test_runs
from mcptally.seeds.ui_probe import tables as ui_tables
from mcptally.seeds.validation_logic.arguments import json_object
from mcptally.seeds.violation import Violation, findings, pointer
from mcptally.tables.declaration import Table
from mcptally.tables.formatting import formatted

_JSON: Final = msgspec.json.Decoder()


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """A result that is worth reading."""

    tool: str
    content: Any
    structured: Any
    is_error: Any

    def texts(self) -> Iterator[tuple[int, str]]:
        """The texts of its text blocks, each with the number of its block."""
        for number, block in enumerate(self.content if isinstance(self.content, list) else ()):
            text = block.get("text") if isinstance(block, dict) else None
            if isinstance(text, str) and block.get("type") == "text":
                yield number, text

    def objects(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The JSON objects it holds, each with its place: structuredContent, then texts."""
        seen = None
        if isinstance(self.structured, dict):
            seen = self.structured
            yield "/structuredContent", seen
        for number, text in self.texts():
            value = json_object(text)
            if value is not None and value != seen:
                yield envelopes.text_place(number), value


def _blocks(result: Result) -> Iterator[Violation]:
    return content.blocks(result.content)


def _empty_texts(result: Result) -> Iterator[Violation]:
    for number, text in result.texts():
        if not text:
            place = envelopes.text_place(number)
            yield Violation(place, "the text is empty", "content.empty_text")


def _xml(result: Result) -> Iterator[Violation]:
    for place, text, declared in _xml_texts(result):
        if declared or xml.IS_XML.match(text):
            for breach in xml.check(text):
                yield breach._replace(path=place)


def _xml_texts(result: Result) -> Iterator[tuple[str, str, bool]]:
    for number, block in enumerate(result.content if isinstance(result.content, list) else ()):
        inside = block.get("resource") if isinstance(block, dict) else None
        if isinstance(inside, dict) and isinstance(inside.get("text"), str):
            kind = str(inside.get("mimeType")).partition(";")[0].strip().lower()
            declared = kind in {"application/xml", "text/xml"} or kind.endswith("+xml")
            yield pointer("content", number, "resource", "text"), inside["text"], declared
    for number, text in result.texts():
        yield envelopes.text_place(number), text, False


def _counts(result: Result) -> Iterator[Violation]:
    for place, value in result.objects():
        for words in list_counts.listed(value):
            yield Violation(place, words, "content.list_counts")


def _messages(result: Result) -> Iterator[Violation]:
    if result.is_error is not True:
        for number, text in result.texts():
            yield from envelopes.message_without_is_error(text, envelopes.text_place(number))
        for place, value in result.objects():
            for name in ("error", "message"):
                said = value.get(name)
                if isinstance(said, str):
                    yield from envelopes.message_without_is_error(said, place + pointer(name))


def _envelopes(result: Result) -> Iterator[Violation]:
    for place, value in result.objects():
        if not envelopes.is_envelope(value):
            continue
        yield from envelopes.judged(value, is_error=result.is_error, at=place)
        inside = value.get("data")
        if value["success"] is True and result.tool in test_runs.DATA and inside is not None:
            yield from test_runs.simple(result.tool, inside, place + "/data")


def _runs(result: Result) -> Iterator[Violation]:
    for place, run in runs(result):
        yield from test_runs.run(run, place)


def runs(result: Result) -> Iterator[tuple[str, dict[str, Any]]]:
    """The test runs in a result, each with its place: bare, or the data of an envelope."""
    for place, value in result.objects():
        for inner, run in ((place, value), (f"{place}/data", value.get("data"))):
            if isinstance(run, dict) and test_runs.is_run(run):
                yield inner, run


Check = Callable[[Result], Iterator[Violation]]

_PLAIN: Final = pl.col("blocks_plain").fill_null(value=False) & (
    pl.col("text_blocks") == pl.col("content_types").list.len()
)
_PHRASES: Final = "(?i)network error|internal server error|too many requests"

SUSPECT: Final = r'"text": ?""|<\?xml|xml"|total_count|"success|runId'
"""One of these is in the JSON text of every response that a check of the text wants: one look at
all of it, so that the checks look at little."""

CHECKS: Final[tuple[tuple[pl.Expr, Check], ...]] = (
    ((pl.col("content_kind") == "array") & ~_PLAIN, _blocks),
    (pl.col("response").str.contains(r'"text"\s*:\s*""'), _empty_texts),
    (pl.col("response").str.contains(r'<\?xml|[/+]xml(?:;[^"]*)?"'), _xml),
    (pl.col("response").str.contains("total_count", literal=True), _counts),
    (pl.col("text").str.head(envelopes.MESSAGE_CHARS).str.contains(_PHRASES), _messages),
    (pl.col("response").str.contains(envelopes.PREFILTER), _envelopes),
    (pl.col("response").str.contains(test_runs.PREFILTER, literal=True), _runs),
)
"""When a result is worth reading, and what is then looked for."""

_SUSPICIOUS: Final = pl.col("asked") & (
    pl.when("asked").then("response").str.contains(SUSPECT)
    | ((pl.col("content_kind") == "array") & ~_PLAIN)
    | pl.col("text").str.head(envelopes.MESSAGE_CHARS).str.contains(_PHRASES)
)
"""Cheap looks at everything, before the checks' own at what is left."""


_PLACE: Final = (
    *("recording", "session", "server", "tool", "definition", "call_id", "seq", "index"),
    *("file", "line", "pos"),
)
_LOOKED_AT: Final = (
    *("response", "text", "is_error", "has_structured_content", "reply_truncated", "outcome"),
    *("content_kind", "content_types", "blocks_plain", "text_blocks", "arguments"),
)


def find(calls: pl.DataFrame) -> tuple[list[pl.DataFrame], dict[type[Table], pl.DataFrame]]:
    """Findings about the results of `calls`, and the tables of the UI tests among them."""
    is_result = (
        pl.col("tool").is_not_null()
        & pl.col("response").is_not_null()
        & pl.col("has_structured_content").is_not_null()  # an error has none
        & ~pl.col("reply_truncated").fill_null(value=False)
    )
    # Responses may be large: only what is worth reading is copied.
    results = calls.select(*_PLACE, *_LOOKED_AT, asked=is_result).with_row_index("at")
    responses = results.get_column("response")
    suspect = results.select(_SUSPICIOUS).to_series().fill_null(value=False)
    results = results.drop("response").filter("asked").with_row_index("row")
    suspects = results.filter(suspect.gather(results.get_column("at")))
    suspects = suspects.with_columns(responses.gather(suspects.get_column("at")).alias("response"))
    told: list[tuple[int, Violation]] = []
    tests: list[tuple[int, str, dict[str, Any]]] = []
    for tool, response, rows, *checks in _worth_reading(suspects).iter_rows():
        result = _read(tool, response)
        if result is None:
            continue
        breaches = [
            breach
            for wanted, (_, check) in zip(checks, CHECKS, strict=True)
            if wanted
            for breach in check(result)
        ]
        told += [(row, breach) for row in rows for breach in breaches]
        if checks[-1]:
            tests += [(row, place, run) for row in rows for place, run in runs(result)]
    forms = results.filter(pl.col("tool").is_in(["fill_and_submit", "infer_form"]))
    forms = forms.with_columns(responses.gather(forms.get_column("at")).alias("response"))
    found = [*findings(results, told), *_whole_columns(results), _unsure(forms)]
    return found, ui_tables.of(results, tests)


def _worth_reading(suspects: pl.DataFrame) -> pl.DataFrame:
    """Each distinct tool and response with the rows it is in, and which checks want it."""
    flags = [
        when.fill_null(value=False).alias(f"check_{number}")
        for number, (when, _) in enumerate(CHECKS)
    ]
    worth = suspects.select("tool", "response", "row", *flags).filter(
        pl.any_horizontal(pl.col("^check_.*$"))
    )
    return worth.group_by("tool", "response", maintain_order=True).agg(
        pl.col("row"), pl.col("^check_.*$").first()
    )


def _read(tool: str, response: str) -> Result | None:
    try:
        value = _JSON.decode(response)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return Result(tool, value.get("content"), value.get("structuredContent"), value.get("isError"))


def _whole_columns(results: pl.DataFrame) -> list[pl.DataFrame]:
    """What columns alone settle: empty content, and isError that is not there."""
    empty = results.filter(
        pl.col("content_kind") == "array", pl.col("content_types").list.len() == 0
    )
    structured = pl.col("has_structured_content")
    beside = pl.when(structured).then(pl.lit(", beside structuredContent")).otherwise(pl.lit(""))
    missing = results.filter(pl.col("is_error").is_null(), pl.col("outcome") != "task")
    # Calls come in order of arrival.
    first = missing.group_by("recording", "tool", maintain_order=True).agg(
        pl.col(*set(_PLACE) - {"recording", "tool"}).first(), times=pl.len()
    )
    times = formatted("isError is left out: results of this tool in this recording, {}", "times")
    return [
        rule_findings.findings_of(
            "content.empty",
            empty,
            pl.concat_str(pl.lit("content is empty"), beside),
            path="/content",
        ),
        rule_findings.findings_of("content.is_error_missing", first, times, path="/isError"),
    ]


def _unsure(results: pl.DataFrame) -> pl.DataFrame:
    """`fill_and_submit` with a form that was inferred with too little confidence."""
    fills = results.filter(pl.col("tool") == "fill_and_submit")
    inferred = results.filter(pl.col("tool") == "infer_form")
    if not fills.height or not inferred.height:
        return rule_findings.findings_of("ui_probe.unsure_form", fills.clear(), "")
    sure = [
        _form(tool, response) for tool, response in inferred.select("tool", "response").iter_rows()
    ]
    known = (
        inferred.select("session", "pos")
        .with_columns(
            form=pl.Series([form for form, _ in sure], dtype=pl.String),
            sureness=pl.Series([number for _, number in sure], dtype=pl.Float64),
        )
        .drop_nulls("sureness")
        .sort("pos")
    )
    asked = fills.with_columns(
        form=pl.Series([_asked(text) for text in fills.get_column("arguments")], dtype=pl.String)
    ).sort("pos")
    # The form that is filled, or else the one inferred last.
    by_form = asked.drop_nulls("form").join_asof(
        known.drop_nulls("form"), on="pos", by=["session", "form"], check_sortedness=False
    )
    left = asked.join(by_form.drop_nulls("sureness").select("call_id"), on="call_id", how="anti")
    by_time = left.join_asof(known.drop("form"), on="pos", by="session", check_sortedness=False)
    unsure = pl.concat([by_form.drop_nulls("sureness"), by_time], how="diagonal").filter(
        pl.col("sureness") <= test_runs.UNSURE
    )
    words = formatted("the form was inferred with confidence {}", "sureness")
    return rule_findings.findings_of(
        "ui_probe.unsure_form", unsure, words, path="/arguments/formSchema"
    )


def _form(tool: str, response: str) -> tuple[str | None, float | None]:
    """Which form an answer of infer_form is about, and how sure it is."""
    result = _read(tool, response)
    for _, value in result.objects() if result else ():
        inside = value.get("data", value)
        confidence = (
            test_runs.as_double(inside.get("confidence")) if isinstance(inside, dict) else None
        )
        if confidence is not None:
            return _name(inside.get("formSchema")), confidence
    return None, None


def _asked(arguments: str | None) -> str | None:
    value = json_object(arguments)
    return _name(value.get("formSchema")) if value else None


def _name(form: Any) -> str | None:
    """What tells a form from others of its page."""
    if not isinstance(form, dict):
        return None
    told = form.get("selector") or form.get("name")
    return told if isinstance(told, str) else None
