"""Typed use of the public API, checked by mypy --strict and never run.

Each `assert_type` states what a caller gets. Each `type: ignore` states a call that mypy must
reject: mypy reports the comment as unused when it no longer does.
"""

import contextlib
import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, assert_type

import polars as pl

import mcptally as mt
from mcptally import (
    Answer,
    BusinessDecision,
    Explanation,
    ResponseMetadata,
    ScenarioResult,
    ScenarioStatus,
    ScenarioSummary,
    Store,
    ValidationContext,
    ValidationResult,
)

Classification = (
    Literal["fully_working", "partially_working", "connectivity_only", "broken", "error"] | None
)
Category = Literal["happy_path", "edge_case", "boundary", "error_case"] | None
Status = Literal["fully_working", "partially_working", "connectivity_only", "broken", "untested"]


def score_an_archive() -> None:
    summary = mt.score(["traces", Path("more")], out="store")
    assert_type(summary.out, str | Path)
    assert_type(summary.files, int)
    assert_type(summary.bytes, int)
    assert_type(summary.rows, dict[str, int])
    mt.score(
        (Path("traces"),),
        out=Path("store"),
        rules="rules.toml",
        scenarios=Path("scenarios.toml"),
        reviews="reviews.jsonl",
        payloads=False,
        servers=["time"],
        tools=("convert_time",),
        since="7d",
        until="2026-12-31",
        full=True,
        jobs=0,
        engine="dask",
        scheduler="tcp://host:8786",
        partition_bytes=1 << 20,
        progress=lambda *_: None,
        warn=print,
    )
    mt.score(["traces"])  # type: ignore[call-arg]
    mt.score(["traces"], "store")  # type: ignore[call-arg]
    mt.score(1, out="store")  # type: ignore[arg-type]


def open_and_query() -> None:
    store = mt.open_store("store", memory="2GB", masked=True)
    assert_type(store, Store)
    assert_type(Store(Path("store"), memory=None), Store)
    assert_type(store.path, Path)
    assert_type(store.manifest, dict[str, Any])
    assert_type(store.memory, str | None)
    answer = store.ask(
        "tool_scores",
        server="time",
        tool="convert_time",
        since=datetime.date(2026, 1, 1),
        until=datetime.datetime(2026, 2, 1, tzinfo=datetime.UTC),
        client="inspector",
        model="m",
        min_calls=10,
    )
    assert_type(answer, Answer)
    assert_type(store.ask("tool_scores", since="7d"), Answer)
    assert_type(store.sql("SELECT ?", params=[1]), Answer)
    assert_type(answer.filter("calls > 9").order("calls").select("tool", "calls").limit(9), Answer)
    assert_type(answer.pl(), pl.DataFrame)
    assert_type(answer.fetchall(), list[tuple[Any, ...]])
    answer.df().head(3)
    answer.arrow().slice(0, 3)
    with mt.open_store("store") as opened:
        assert_type(opened, Store)
    store.cancel()
    store.close()
    assert_type(store.keeping()("tool_scores"), Answer)
    assert_type(store.show("33e9d0f0", seed=True), Explanation)
    limited: contextlib.AbstractContextManager[None] = store.within(1.5, rows=10)
    with limited:
        store.sql("SELECT 1")
    assert_type(store.mark(), tuple[int, int])
    store.ask("tool_scores", "time")  # type: ignore[call-arg]
    store.ask("tool_scores", servers="time")  # type: ignore[call-arg]
    store.sql(b"SELECT 1")  # type: ignore[arg-type]


def review_a_store(store: Store) -> None:
    filled = store.review(
        20, sample=True, server="time", tool="convert_time", who="ann", reviews="reviews.jsonl"
    )
    assert_type(filled, pl.DataFrame)
    assert_type(store.answer(filled, who="ann", reviews=Path("reviews.jsonl")), int)
    store.review("all")  # type: ignore[arg-type]


def compare_stores(before: Store, after: Store) -> None:
    comparison = before.compare(after, min_difference=0.1, min_ratio=1.5, alpha=0.01)
    assert_type(comparison.base, Path)
    assert_type(comparison.new, Path)
    assert_type(comparison.tools, Answer)
    assert_type(comparison.metrics, Answer)
    before.compare("after")  # type: ignore[arg-type]


def write_a_report(store: Store) -> None:
    assert_type(mt.report("store"), str)
    assert_type(
        mt.report(
            store,
            Path("report.html"),
            base=None,
            server="time",
            tool=None,
            since="7d",
            until="2026-02-01",
            client=None,
            model=None,
        ),
        str,
    )
    mt.report(store, base=store)
    mt.report(store, "report.html", "base")  # type: ignore[call-arg]


def change_stores() -> None:
    merged = mt.merge_stores(
        ["store", Path("second")], out="merged", rules="rules.toml", scenarios=None
    )
    assert_type(merged.out, Path)
    assert_type(merged.stores, int)
    assert_type(merged.files, int)
    assert_type(merged.rows, dict[str, int])
    mt.merge_stores(["store"], "merged")  # type: ignore[call-arg]


def count(path: Path, records: int) -> None: ...


def import_other_logs() -> None:
    imported = mt.import_logs(
        ["log", Path("folder")],
        "traces",
        format="har",
        redaction="none",
        timezone="UTC",
        server="time",
        envelope=None,
        progress=count,
    )
    assert_type(imported.recordings, int)
    assert_type(imported.events, int)
    assert_type(imported.passed_over, dict[Path, str])
    mt.import_logs("log")  # type: ignore[call-arg]


def check_and_redact_an_archive() -> None:
    checked = mt.check("traces")
    assert_type(checked.whole, bool)
    assert_type([one.problems for one in checked.recordings], list[list[str]])
    mt.check(["traces", Path("more")])
    redacted = mt.redact(Path("traces"), "shareable", rules="strict,-home-folders")
    assert_type(redacted.redacted, int)
    assert_type(redacted.withheld, list[str])
    mt.redact("traces")  # type: ignore[call-arg]


def score_one_response(mapping: Mapping[str, Any]) -> None:
    context = ValidationContext(
        tool={"name": "get"}, response={"content": []}, input={}, scenario_category="edge_case"
    )
    assert_type(context.scenario_category, Category)
    assert_type(ValidationContext.of(mapping), ValidationContext)
    ValidationContext(tool={}, response={}, scenario_category="other")  # type: ignore[arg-type]

    result = mt.validate_response(context, rules="inspector")
    assert_type(result, ValidationResult)
    assert_type(mt.validate_response(mapping), ValidationResult)
    assert_type(result.is_valid, bool | None)
    assert_type(result.is_error, bool | None)
    assert_type(result.confidence, float | None)
    assert_type(result.classification, Classification)
    assert_type(result.issues, tuple[str, ...])
    assert_type(result.evidence, tuple[str, ...])
    assert_type(result.response_metadata, ResponseMetadata | None)
    assert_type(result.throws, str | None)
    assert_type(result.to_json(), dict[str, Any])
    mt.validate_response(context, "document")  # type: ignore[call-arg]
    mt.validate_response(context, rules="program")  # type: ignore[arg-type]
    mt.validate_response("context")  # type: ignore[arg-type]

    decision = mt.business_decision(context, rules="document")
    assert_type(decision, BusinessDecision)
    assert_type(decision.is_business_error, bool | None)
    assert_type(decision.confidence, float | None)
    assert_type(decision.threshold, float | None)
    assert_type(mt.is_business_error(context, rules="document"), bool | None)

    metadata = mt.response_metadata(context, rules="document")
    assert_type(metadata, ResponseMetadata | None)
    if metadata is not None:
        assert_type(metadata.content_types, tuple[str, ...])
        assert_type(metadata.text_block_count, int)
        assert_type(metadata.has_structured_content, bool)


def score_scenarios(result: ValidationResult) -> None:
    scenario = ScenarioResult(
        classification="fully_working",
        confidence=90.0,
        is_valid=True,
        category="happy_path",
        executed=True,
        evidence=("text",),
    )
    assert_type(mt.overall_confidence([result, scenario], rules="document"), float)
    status = mt.scenario_status([scenario], planned=3, rules="inspector")
    assert_type(status, ScenarioStatus)
    assert_type(status.summary, ScenarioSummary | None)
    assert_type(status.recommendations, tuple[str, ...])
    assert_type(status.status, Status)
    assert_type(status.confidence, float)
    assert_type(status.executed, int)
    assert_type(status.passed, int)
    mt.scenario_status([result])  # type: ignore[list-item]


def check_a_response_in_a_test() -> None:
    mt.assert_tool_response({"content": []}, rules="document")
    mt.assert_tool_response({}, rules="inspector")  # type: ignore[arg-type]
