"""Builds the tables `ui_runs`, `ui_steps` and `ui_errors` from UI test runs."""

import json
from collections.abc import Sequence
from typing import Any

import polars as pl

from mcptally.seeds.ui_probe import test_runs
from mcptally.seeds.ui_probe.shapes import as_double
from mcptally.tables.declaration import Table
from mcptally.tables.ui_tests import UiErrors, UiRuns, UiSteps


def ui_tables(
    results: pl.DataFrame, runs: Sequence[tuple[int, dict[str, Any]]]
) -> dict[type[Table], pl.DataFrame]:
    """Build the tables `ui_runs`, `ui_steps` and `ui_errors`.

    Args:
        results: the calls in whose results the runs were found.
        runs: pairs of a row index in `results` and a test run.
    """
    rows = {
        UiRuns: [_run(row, run) for row, run in runs],
        UiSteps: [step for row, run in runs for step in _steps(row, run)],
        UiErrors: [error for row, run in runs for error in _errors(row, run)],
    }
    return {table: _frame(table, results, values) for table, values in rows.items()}


def _frame(table: type[Table], results: pl.DataFrame, rows: list[dict[str, Any]]) -> pl.DataFrame:
    if not rows:
        return table.frame(pl.DataFrame())
    schema = {name: kind for name, kind in table.schema().items() if name in rows[0]}
    frame = pl.DataFrame(rows, schema={"row": pl.UInt32, **schema})
    calls = results.select("call_id", "recording", "session", "server", "tool")
    return table.frame(calls[frame.get_column("row")].hstack(frame.drop("row")))


def _run(row: int, run: dict[str, Any]) -> dict[str, Any]:
    target, metrics, findings = (_object(run, name) for name in ("target", "metrics", "findings"))
    issues = test_runs.program(run)
    return {
        "row": row,
        "run_id": _text(run.get("runId")),
        "url": _text(target.get("url")),
        "viewport": _text(target.get("viewport")),
        "user_agent": _text(target.get("userAgent")),
        "result": _text(run.get("result")),
        "result_determined": test_runs.determined(run),
        "steps": len(_list(run, "flow")),
        "errors": len(_list(run, "errors")),
        "forms": len(_list(findings, "forms")),
        "axe_violations": _int(_object(findings, "accessibility").get("axeViolations")),
        "total_time_ms": as_double(metrics.get("totalTimeMs")),
        "steps_told": _int(metrics.get("steps")),
        "network_errors_told": _int(metrics.get("networkErrors")),
        "console_errors_told": _int(metrics.get("consoleErrors")),
        "shape_issues": [f"{'.'.join(map(str, i.path))}: {i.code}" for i in issues[:20]],
    }


def _steps(row: int, run: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "row": row,
            "run_id": _text(run.get("runId")),
            "position": position,
            "step_id": _text(step.get("stepId")),
            "action": _text(step.get("action")),
            "selector": _text(step.get("selector")),
            "intent": _text(step.get("inferredIntent")),
            "input": None if step.get("input") is None else json.dumps(step["input"]),
            "outcome": _text(step.get("outcome")),
            "latency_ms": as_double(step.get("latencyMs")),
            "timestamp": _text(step.get("timestamp")),
        }
        for position, step in enumerate(_list(run, "flow"))
        if isinstance(step, dict)
    ]


def _errors(row: int, run: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "row": row,
            "run_id": _text(run.get("runId")),
            "position": position,
            "type": _text(error.get("type")),
            "code": _text(error.get("code")),
            "code_known": test_runs.known_code(str(error.get("code"))),
            "selector": _text(error.get("selector")),
            "message": _text(error.get("message")),
            "evidence": None if error.get("evidence") is None else json.dumps(error["evidence"]),
            "timestamp": _text(error.get("timestamp")),
        }
        for position, error in enumerate(_list(run, "errors"))
        if isinstance(error, dict)
    ]


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    inner = value.get(name)
    return inner if isinstance(inner, dict) else {}


def _list(value: dict[str, Any], name: str) -> list[Any]:
    inner = value.get(name)
    return inner if isinstance(inner, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _int(value: Any) -> int | None:
    number = as_double(value)
    exact = number is not None and abs(number) < 2**53 and number % 1 == 0
    return int(number) if number is not None and exact else None
