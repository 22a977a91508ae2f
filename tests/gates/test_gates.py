"""Gates: which results fail or are undecided, and the reports for CI."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import mcptally as mt
from mcptally.errors import UsageError
from mcptally.gates import ci_reports
from mcptally.gates import limits as gates
from tests.analytics.built_stores import (
    FAILED,
    NO_NETWORK,
    REFUSED,
    UNCLEAR,
    Servers,
    build,
    call,
    sessions,
)
from tests.commands import run
from tests.transcripts import call as asked
from tests.transcripts import event, exchange, opened, text, write

pytestmark = pytest.mark.slow

BAD = sessions([(1, 2)] * 40, "bad")
GOOD = sessions([(0, 2)] * 80, "good")
UNKNOWN = sessions([(3, 4)] * 2, "unknown")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return build(tmp_path_factory.mktemp("gates") / "s", BAD + GOOD + UNKNOWN)


def states(store, *texts):
    return {r.tool: r.state for r in gates.check_store(store, gates.load(texts))}


@pytest.mark.parametrize(
    ("gate", "of_unknown"),
    [
        ("failure_rate > 10%", "undecided"),  # by the whole interval
        ("confidence < 80", "undecided"),  # a lower limit
        ("tool_failures > 0", "failed"),  # a count has no interval
    ],
)
def test_a_gate_fails_passes_or_is_undecided(store, gate, of_unknown):
    assert states(store, gate) == {"bad": "failed", "good": "passed", "unknown": of_unknown}


def test_a_gate_fails_for_a_server_that_never_started(tmp_path):
    close = event("close", 1, reason="not_started", exit_code=127)
    write(tmp_path / "a.jsonl", [opened(), close])
    arguments = ("score", tmp_path / "a.jsonl", "-o", tmp_path / "s")
    done = run(*arguments)
    assert (done.returncode, "\ncalls: none\n" in done.stderr) == (0, True)
    assert done.stderr.endswith(f"mcptally query {tmp_path / 's'} servers\n")
    assert run(*arguments, "--fail-on", "server.failed_starts > 0").returncode == 1


def test_the_message_shows_shares_and_the_limit_in_percent(store):
    messages = {
        r.tool: r.message for r in gates.check_store(store, gates.load(["failure_rate > 0.1"]))
    }
    assert messages["bad"].startswith("failure_rate is 50.0% (")
    assert messages["bad"].endswith("%) on 80 calls in 40 sessions; limit: > 10%")


HIDDEN = {"outcome": "hidden_error", "verdict": "tool_failure"}
UNANSWERED = {"outcome": "no_response", "verdict": "infrastructure"}
RATES = {
    "infrastructure_rate": NO_NETWORK,
    "refusal_rate": REFUSED,
    "ambiguous_rate": UNCLEAR,
    "unanswered_rate": UNANSWERED,
    "hidden_error_rate": HIDDEN,
    "failure_rate": FAILED,
    "retry_rate": {"attempt_why": "retry"},
    "invalid_input_rate": {"input_schema_state": "invalid"},
    "invalid_output_rate": {"output_schema_state": "invalid"},
}
"""Maps each rate to the fields of a call that counts as a hit."""
OTHERS = {"input_schema_state": "valid", "output_schema_state": "valid"}


def single_calls(tool, hits, total, fields):
    """Sessions of one call each, so that n_eff is the number of sessions."""
    return [call(n, tool, **(OTHERS | (fields if n < hits else {}))) for n in range(total)]


@pytest.fixture(scope="module")
def rates(tmp_path_factory):
    """A store with the same four tools for each rate, whose names begin with the rate's name."""
    rows = []
    for rate, fields in RATES.items():
        rows += single_calls(f"{rate}: 2 of 2", 2, 2, fields)
        rows += single_calls(f"{rate}: 3 of 3", 3, 3, fields)
        rows += single_calls(f"{rate}: 0 of 72", 0, 72, fields)
        rows += single_calls(f"{rate}: 0 of 71", 0, 71, fields)
    return build(tmp_path_factory.mktemp("rates") / "s", rows)


@pytest.fixture(scope="module")
def states_of_rates(rates):
    """Return the state of a gate and tool for each rate."""
    results = gates.check_store(rates, gates.load([f"{rate} > 5%" for rate in RATES]))
    return {(result.gate.column, result.tool): result.state for result in results}


@pytest.mark.parametrize("rate", RATES)
def test_each_rate_is_decided_by_its_own_interval_from_three_sessions_on(states_of_rates, rate):
    tools = {
        f"{rate}: 2 of 2": "undecided",
        f"{rate}: 3 of 3": "failed",
        f"{rate}: 0 of 72": "passed",
        f"{rate}: 0 of 71": "undecided",
    }
    assert {tool: states_of_rates[rate, tool] for tool in tools} == tools


CASES = Servers()
LITTLE_LEFT = CASES.add(single_calls("t", 16, 20, NO_NETWORK))
NO_EVIDENCE = CASES.add(single_calls("t", 20, 20, NO_NETWORK))
FEW_CHECKED = CASES.add(
    call(n, **({"output_schema_state": "invalid"} if n < 9 else {})) for n in range(40)
)
ONE_CALL = CASES.add([call(1, latency_ms=9000.0)])
HOSTILE_NAME = CASES.add(sessions([(1, 2)] * 40, "evil\x1b[31m\x00<&]]>\uffff"))


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return CASES.build(tmp_path_factory.mktemp("cases") / "s").store


@pytest.fixture(scope="module")
def results(cases):
    """Return the results of gates for a server, by the gates' text."""
    texts = [
        *("server.infrastructure_rate > 5%", "server.success_rate < 50%", "server.confidence < 90"),
        *("confidence < 90", "confidence_shrunk < 90", "failure_rate > 50%"),
        *("invalid_output_rate > 5%", "infrastructure_rate > 5%", "infrastructure_rate_low > 5%"),
        *("latency_p95_ms > 2000", "tool_failures > 0"),
    ]
    found = gates.check_store(cases, gates.load(texts))
    return lambda server: {r.gate.text: r for r in found if r.server == server}


def test_a_server_that_never_answered_fails_a_gate_on_infrastructure(cases, results):
    (few,) = cases.ask("server_scores", server=LITTLE_LEFT).pl()["confidence_insufficient_data"]
    assert few, "4 calls are too few to judge the tool by"
    found = results(LITTLE_LEFT)
    assert found["server.infrastructure_rate > 5%"].state == "failed"
    assert found["server.success_rate < 50%"].state == "failed"
    assert found["server.confidence < 90"].state == "undecided"


@pytest.mark.parametrize(
    "gate", ["confidence < 90", "server.confidence < 90", "confidence_shrunk < 90"]
)
def test_a_gate_on_confidence_is_undecided_without_evidence(results, gate):
    result = results(NO_EVIDENCE)[gate]
    assert result.state == "undecided"
    assert "no evidence in 20 calls, of which 0 worked" in result.message


def test_a_rate_of_few_calls_is_decided_by_its_own_sessions(results):
    """Nine calls, each in its own session, have an output schema; all count as failures."""
    assert results(FEW_CHECKED)["failure_rate > 50%"].state == "passed"
    assert results(FEW_CHECKED)["invalid_output_rate > 5%"].state == "failed"
    assert "in 9 sessions" in results(FEW_CHECKED)["invalid_output_rate > 5%"].message


def test_the_end_of_an_interval_is_compared_directly(results):
    assert results(ONE_CALL)["infrastructure_rate > 5%"].state == "undecided"
    assert results(ONE_CALL)["infrastructure_rate_low > 5%"].state == "passed"


def test_a_flawless_tool_passes_sooner_if_other_tools_show_that_calls_of_a_session_differ(tmp_path):
    flawless = sessions([(0, 6)] * 40, "flawless")

    def others(failed):
        """Ten tools, with this number of failed calls in every third session of six calls."""
        some = [(failed, 6), (0, 6), (0, 6)] * 13
        return [row for tool in range(10) for row in sessions(some, f"other {tool}")]

    found = {
        name: states(build(tmp_path / name, flawless + rows), "failure_rate > 5%")["flawless"]
        for name, rows in {"alone": [], "unrelated": others(1), "whole": others(6)}.items()
    }
    assert found == {"alone": "undecided", "unrelated": "passed", "whole": "undecided"}


def test_a_latency_without_an_interval_is_undecided(results):
    assert results(ONE_CALL)["latency_p95_ms > 2000"].state == "undecided"


def test_a_tool_without_a_value_has_no_result(results):
    assert "invalid_output_rate > 5%" not in results(ONE_CALL)
    assert "invalid_output_rate > 5%" in results(FEW_CHECKED)


def test_a_gate_may_be_about_servers(store):
    (result,) = gates.check_store(store, gates.load(["server.failure_rate > 10%"]))
    assert (result.server, result.tool, result.state) == ("s", None, "failed")


def test_of_gates_in_a_file_the_last_that_matches_counts(store, tmp_path):
    path = tmp_path / "gates.toml"
    path.write_text(
        '[[gate]]\nfail-on = ["failure_rate > 10%", "calls > 1000"]\n'
        '[[gate]]\nserver = "s"\ntool = "b*"\nfail-on = "failure_rate > 90%"\n'
    )
    found = {
        (r.tool, r.gate.text): r.state for r in gates.check_store(store, gates.load([str(path)]))
    }
    assert found["bad", "failure_rate > 90%"] == "passed"
    assert ("bad", "failure_rate > 10%") not in found
    assert found["good", "failure_rate > 10%"] == "passed"
    assert found["bad", "calls > 1000"] == "passed"


def test_an_undecided_gate_fails_if_that_is_asked_for(tmp_path):
    traces = transcript(tmp_path / "t.jsonl", 0)
    gate = ("--fail-on", "failure_rate > 5%", "--junit", tmp_path / "j.xml")
    command = ("score", traces, "-o", tmp_path / "store", *gate)
    assert run(*command).returncode == 0
    done = run(*command, "--fail-on-undecided")
    assert (done.returncode, "FAILED demo/t: undecided: " in done.stderr) == (1, True)
    assert ET.parse(tmp_path / "j.xml").find(".//failure") is not None  # noqa: S314  (we wrote it)
    done = run("score", traces, "-o", tmp_path / "store", "--fail-on-undecided")
    assert (done.returncode, "needs --fail-on" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "contains no gate"),
        ("[[gate]]\nfail-no = 'x'", "did you mean fail-on"),
        ("[[gate]]\nserver = 's'", "required field `fail-on`"),
        ("[[gate]]\nfail-on = 'calls > 1'\ntool = 3", "got `int`"),
        ("[[gate", "is not TOML"),
    ],
)
def test_an_invalid_file_of_gates_is_rejected_with_the_reason(tmp_path, content, words):
    path = tmp_path / "g.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match=words):
        gates.load([str(path)])


def test_findings_are_counted_at_matching_servers_and_tools(tmp_path):
    paths = []
    for server in ("one", "two"):
        talk = [asked(0, f"{server}-0"), text(0), asked(1, f"{server}-1"), text(1)]
        events = [opened(server, server=server), *exchange(*talk, recording=server)]
        paths.append(write(tmp_path / f"{server}.jsonl", events))
    mt.score(paths, out=tmp_path / "store")
    opened_store = mt.open_store(tmp_path / "store")
    for where, file, line in (
        ("", "one.jsonl", 2),
        ("server = 'two'", "two.jsonl", 2),
        ("server = 'two'\ntool = '*-1'", "two.jsonl", 4),
        ("server = 'three'", None, None),
    ):
        path = tmp_path / "gates.toml"
        path.write_text(f"[[gate]]\nfail-on = 'findings.protocol.before_initialize > 0'\n{where}")
        (result,) = gates.check_store(opened_store, gates.load([str(path)]))
        assert result.state == ("failed" if file else "passed")
        assert (result.file and Path(result.file).name, result.line) == (file, line)


def test_a_gate_on_a_metric_passes_if_no_tool_is_in_both_stores(tmp_path):
    stores = [build(tmp_path / name, [call(1, tool=name)]) for name in ("a", "b")]
    comparison = stores[0].compare(stores[1])
    assert gates.check_changes(comparison, gates.load(["failure_rate > 5%"], comparing=True)) == []


PLACES = {
    "/traces/a b%20#?.jsonl": "file:///traces/a%20b%2520%23%3F.jsonl",
    "s3://bucket/a b.jsonl": "s3://bucket/a%20b.jsonl",
    "traces/ü.jsonl.gz": "e2e/traces/%C3%BC.jsonl.gz",
    "../other/a.jsonl": "other/a.jsonl",
    "{repository}/a:b.jsonl": "./a:b.jsonl",
}


@pytest.mark.parametrize(("file", "uri"), PLACES.items())
def test_sarif_names_a_transcript_relative_to_the_repository(tmp_path, monkeypatch, file, uri):
    (tmp_path / ".git").mkdir()
    (tmp_path / "e2e").mkdir()
    monkeypatch.chdir(tmp_path / "e2e")
    file = file.replace("{repository}", str(tmp_path))
    gate = gates.parse("failure_rate > 10%")
    data = ci_reports.as_sarif([gates.Result(gate, "failed", "s", "t", "so", file, 7)])
    (found,) = json.loads(data)["runs"][0]["results"]
    (location,) = found["locations"]
    place = location["physicalLocation"]["artifactLocation"]
    assert place["uri"] == uri
    assert place.get("uriBaseId") == (None if "//" in uri else "%SRCROOT%")


def test_changes_are_gated_by_kind_and_by_size(tmp_path):
    base = build(tmp_path / "a", sessions([(0, 3)] * 40, "t"))
    new = build(tmp_path / "b", sessions([(2, 3)] * 20 + [(1, 3)] * 20, "t"))
    comparison = base.compare(new)

    def failed(gate):
        results = gates.check_changes(comparison, gates.load([gate], comparing=True))
        return {r.tool for r in results if r.state == "failed" and r.tool}

    assert failed("worse") == failed("worse.confidence") == failed("worse.success_rate") == {"t"}
    assert failed("failure_rate > 20%") == failed("success_rate < -20%") == {"t"}
    assert failed("confidence < -20") == {"t"}
    assert failed("confidence < -60") == set()
    found = gates.check_changes(comparison, gates.load(["worse"], comparing=True), [new, base])
    assert {(r.file, r.line) != (None, None) for r in found if r.state == "failed"} == {True}
    assert failed("failure_rate > 60%") == failed("vanished") == failed("better") == set()


def test_hostile_names_are_plain_text_in_the_reports(results):
    failed = [results(HOSTILE_NAME)["tool_failures > 0"]]
    root = ET.fromstring(ci_reports.as_junit(failed))  # noqa: S314  (we wrote it)
    assert root.find(".//failure") is not None
    data = json.loads(ci_reports.as_sarif(failed))
    (found,) = data["runs"][0]["results"]
    assert found["locations"][0]["physicalLocation"]["region"]["startLine"] == 1
    assert "\x1b" not in json.dumps(data, ensure_ascii=False)
    assert "\x1b" not in "".join(ci_reports.lines(failed))


def test_junit_counts_undecided_results_as_skipped(store):
    results = gates.check_store(store, gates.load(["failure_rate > 10%"]))
    suite = ET.fromstring(ci_reports.as_junit(results)).find("testsuite")  # noqa: S314
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")


def transcript(path, failing):
    events = []
    for number in range(12):
        words = "TypeError: x is not a function" if number < failing else "fine"
        talk = asked(1, "t"), text(1, words, isError=number < failing)
        events += [opened(f"r{number}"), *exchange(*talk, recording=f"r{number}")]
    return write(path, events)


def test_commands_exit_with_1_if_a_gate_fails_and_else_with_0(tmp_path):
    bad, good = transcript(tmp_path / "b.jsonl", 12), transcript(tmp_path / "g.jsonl", 0)
    gate = ("--fail-on", "failure_rate > 10%", "--junit", tmp_path / "j.xml")
    done = run("score", bad, "-o", tmp_path / "bad", *gate, "--sarif", tmp_path / "s.json")
    assert (done.returncode, "FAILED demo/t" in done.stderr) == (1, True)
    assert (tmp_path / "j.xml").exists()
    assert json.loads((tmp_path / "s.json").read_text())["version"] == "2.1.0"
    assert run("score", good, "-o", tmp_path / "good", *gate).returncode == 0
    done = run("compare", tmp_path / "good", tmp_path / "bad", "--fail-on", "worse")
    assert (done.returncode, "lower confidence: 100.0%" in done.stdout) == (1, True), done.stderr
    same = ("compare", tmp_path / "good", tmp_path / "good", "--format", "json")
    done = run(*same, "--fail-on", "worse")
    assert done.returncode == 0
    assert {row["change"] for row in json.loads(done.stdout)} <= {"unclear", "unchanged"}
    done = run(*same, "--junit", "x.xml")
    assert (done.returncode, "need --fail-on" in done.stderr) == (2, True)
