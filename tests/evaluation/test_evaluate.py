"""Measures the verdict with labels from both vocabularies: rates, and calibration by server."""

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

from mcptally.cli import cli
from mcptally.errors import UnreadableError
from mcptally.evaluation import evaluate, labels, measures, verdict_rows

LABELS = Path(__file__).parents[1] / "verdict" / "labels"

ERROR = {
    "server": "npm:@a/mcp-x-server", "tool": "t", "args": {"q": 1}, "text": "x not found",
    "is_error": True, "channel": "tool", "code": None, "hidden": False,
    "verdict": "business", "reason": "not_found",
}  # fmt: skip
TRAFFIC = {
    "recording": "r", "id": 3, "server": "x-http", "method": "tools/call", "tool": "t",
    "args": "{}", "wire": "isError=true", "class": "infra_error", "why": "", "text": "fetch failed",
}  # fmt: skip


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    file = folder / "labels.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_both_vocabularies_become_the_same_table(tmp_path: Path):
    read = labels.read(write(tmp_path, ERROR, TRAFFIC))
    assert read["label"].to_list() == ["business", "infrastructure"]
    assert read["family"].to_list() == ["x", "x"]
    assert read["request_id"].to_list() == [None, "3"]


@pytest.mark.parametrize(
    ("row", "label", "is_hidden"),
    [
        (ERROR | {"verdict": "not_error", "is_error": False}, None, False),
        (ERROR | {"verdict": "ambiguous"}, None, None),
        (ERROR | {"hidden": True, "is_error": False}, "business", True),
        (TRAFFIC | {"class": "hidden_error", "wire": "isError false/absent"}, None, True),
        (TRAFFIC | {"class": "ok", "wire": "isError false/absent"}, None, False),
        (TRAFFIC | {"class": "ambiguous"}, None, None),
        (TRAFFIC | {"class": "protocol_error"}, "business", None),
    ],
)
def test_a_label_says_only_what_it_is_about(
    tmp_path: Path, row: dict[str, Any], label: str | None, is_hidden: bool | None
):
    read = labels.read(write(tmp_path, row)).row(0, named=True)
    assert (read["label"], read["is_hidden"]) == (label, is_hidden)
    assert read["is_ambiguous"] is ("ambiguous" in row.values())


@pytest.mark.parametrize(
    ("said", "code", "text"),
    [
        ("-32603 fetch failed", -32603, "fetch failed"),
        (f"{10**30} fetch failed", None, f"{10**30} fetch failed"),
    ],
)
def test_a_json_rpc_code_is_taken_from_the_text_of_a_traffic_label(
    tmp_path: Path, said: str, code: int | None, text: str
):
    row = TRAFFIC | {"wire": "jsonrpc_error", "text": said}
    read = labels.read(write(tmp_path, row)).row(0, named=True)
    assert (read["error_code"], read["text"]) == (code, text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("npm:@modelcontextprotocol/server-filesystem", "filesystem-nobody"),
        ("pypi:mcp-server-git", "git-v1"),
        ("redis-old-outage", "pypi:redis-mcp-server"),
    ],
)
def test_releases_and_ways_of_running_one_server_are_a_family(one: str, other: str):
    assert labels.family(one) == labels.family(other)


@pytest.mark.parametrize(
    "content", ["", "{}\n", "[1]\n", "{not json\n", '{"a": 1}\n', "[" * 100_000]
)
def test_what_is_no_labelled_file_is_refused_with_its_line(tmp_path: Path, content: str):
    file = tmp_path / "x.jsonl"
    file.write_text(content)
    with pytest.raises(UnreadableError, match=r"x\.jsonl"):
        labels.read(file)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (ERROR | {"verdict": "busines"}, "did you mean business"),
        (ERROR | {"verdict": ["business"]}, "'verdict' must be a string"),
        (TRAFFIC | {"class": {"ok": 1}}, "'class' must be a string"),
        (TRAFFIC | {"class": "business"}, "did you mean business_error"),
        (ERROR | {"server": 5}, "'server' must be a string, not 5"),
        (ERROR | {"text": 5}, "'text' must be a string"),
        (ERROR | {"code": "E1"}, "'code' must be an integer"),
        (ERROR | {"code": 10**30}, "'code' must be an integer"),
        (ERROR | {"calls": 0}, "'calls' must be a positive integer"),
    ],
)
def test_a_label_of_another_shape_is_refused_with_its_line(
    tmp_path: Path, row: dict[str, Any], says: str
):
    with pytest.raises(UnreadableError, match=rf"labels\.jsonl:2: .*{says}"):
        labels.read(write(tmp_path, ERROR, row))


def test_only_a_newline_ends_a_label(tmp_path: Path):
    file = tmp_path / "labels.jsonl"
    text = "one\u2028two\x85three"
    file.write_text(json.dumps(ERROR | {"text": text}, ensure_ascii=False), encoding="utf-8")
    assert labels.read(file)["text"].to_list() == [text]


def test_rates_come_with_wilson_intervals():
    rate = measures.Rate.of(8, 10)
    assert (round(rate.low, 4), round(rate.high, 4)) == (0.4902, 0.9433)
    assert math.isnan(measures.Rate.of(0, 0).value)


def test_balanced_accuracy_and_matthews_are_what_they_are_defined_as():
    assert measures.balanced_accuracy(8, 2, 1, 9) == pytest.approx(0.85)
    assert measures.matthews(8, 2, 1, 9) == pytest.approx(70 / 9900**0.5)
    assert measures.matthews(5, 0, 5, 0) == 0


def test_calibration_error_is_zero_where_certainty_comes_true():
    sure = pl.Series([0.0] * 6 + [100.0] * 30)
    right = pl.Series([False] * 6 + [True] * 30)
    assert measures.calibration_error(measures.reliability(sure, right)) == pytest.approx(0)
    assert measures.brier(sure, right) == pytest.approx(0)


def test_bins_have_equal_sizes_from_the_least_to_the_most_confident():
    certainty = pl.Series([float(value) for value in range(12, 0, -1)])
    table = measures.reliability(certainty, pl.Series([True] * 12))
    assert [(row["from"], row["to"], row["n"]) for row in table] == [
        (low, low + 1, 2) for low in range(1, 12, 2)
    ]


def test_verdicts_are_measured_by_cause_and_by_call(tmp_path: Path):
    crash = ERROR | {"text": "KeyError: 'a'", "verdict": "tool_failure", "reason": "exception_bug"}
    missed = crash | {"text": "user not found", "tool": "u"}
    hidden = ERROR | {"hidden": True, "is_error": False, "text": "user not found", "tool": "v"}
    quality = evaluate(write(tmp_path, crash, missed, hidden)).verdict
    assert quality is not None
    found = quality.tool_failures
    assert (found.k, found.n) == (1, 2)
    assert (quality.hidden_causes.k, quality.hidden_causes.n) == (1, 1)
    assert (quality.fault.k, quality.fault.n) == (2, 3)
    assert (quality.retryable.k, quality.retryable.n) == (2, 3)
    assert [tool["tool"] for tool in quality.changing_tools] == ["u"]


@pytest.mark.slow
def test_labels_are_weighed_by_text_group_calls_and_server(tmp_path: Path):
    texts = ["user 1 not found", "user 2 not found", "user 3 not found"]
    found = [ERROR | {"text": text} for text in texts]
    crash = ERROR | {"text": "KeyError: 'a'", "tool": "u"}
    other = ERROR | {"server": "npm:other", "text": "fetch failed", "verdict": "infrastructure"}
    quality = evaluate(write(tmp_path, *found, crash, other)).verdict
    assert quality is not None
    shares = {each.weighting: each for each in quality.weighted}
    assert list(shares) == ["text", "group", "server"]
    assert shares["text"].accuracy == pytest.approx(4 / 5)
    assert shares["group"].accuracy == pytest.approx(2 / 3)
    assert shares["server"].accuracy == pytest.approx((3 / 4 + 1) / 2)
    assert shares["text"].tool_precision == 0
    assert math.isnan(shares["text"].tool_recall)


def test_labels_that_share_a_failure_share_their_calls(tmp_path: Path):
    one, two = (ERROR | {"text": f"user {n} not found", "calls": 1 + n} for n in (1, 2))
    other = ERROR | {"text": "fetch failed", "verdict": "infrastructure", "calls": 7}
    read = labels.read(write(tmp_path, one, two, other, ERROR))
    assert read.get_column("calls").to_list() == [5, 5, 7, 1]


@pytest.mark.slow
def test_the_verdict_on_a_hidden_error_reads_what_reports_the_failure(tmp_path: Path):
    crash = "TypeError: Cannot read properties of undefined (reading 'id')"
    steps = [{"name": "refuse invalid input: must be a number", "ok": True}, {"error": crash}]
    label = ERROR | {"verdict": "tool_failure", "hidden": True, "is_error": False}
    row = label | {"text": json.dumps({"steps": steps})}
    (decided,) = verdict_rows(labels.read(write(tmp_path, row))).to_dicts()
    (alone,) = verdict_rows(labels.read(write(tmp_path, label | {"text": crash}))).to_dicts()
    assert decided["evidence"] == alone["evidence"]
    assert decided["verdict"] == "tool_failure"


def test_the_command_prints_tables_and_json(tmp_path: Path):
    file = str(write(tmp_path, ERROR, TRAFFIC))
    table = CliRunner().invoke(cli, ["evaluate", file])
    assert table.exit_code == 0
    assert "seed heuristic" in table.output
    assert "always business" in table.output
    answer = CliRunner().invoke(cli, ["evaluate", file, "--format", "json"])
    assert json.loads(answer.output)["verdict"]["n"] == 2


@pytest.mark.slow
def test_the_verdict_reaches_what_is_promised():
    for name in ("errors.jsonl", "traffic.jsonl"):
        measured = evaluate(LABELS / name)
        assert measured.verdict is not None
        assert measured.hidden is not None
        assert measured.verdict.scorers[0].balanced_accuracy.value >= 0.90
        assert measured.verdict.accuracy.value >= 0.88
        assert measured.verdict.calibration.calibration_error <= 0.05
        assert measured.hidden.precision.value >= 0.90
        assert measured.hidden.recall.value >= 0.85
