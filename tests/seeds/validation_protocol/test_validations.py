"""Validations: recognised, checked, and compared with the calls that they are about."""

# ruff: noqa: E501  (tables of cases, one a line)

import json
import subprocess
import sys
from pathlib import Path

import pytest

import mcptally as mt
from mcptally.analytics import dry_run
from mcptally.seeds.validation_protocol import argument_semantics, cron
from mcptally.seeds.validation_protocol import texts as validation_texts
from tests import transcripts as t
from tests.commands import run

SERVER = Path(__file__).parents[2] / "servers" / "validating_server.py"

CLIENT = """
import anyio, json, sys
from mcp import Client, StdioServerParameters
async def main():
    for calls in json.loads(sys.argv[1]):
        await session(calls)
async def session(calls):
    server = StdioServerParameters(command=sys.argv[2], args=sys.argv[3:])
    async with Client(server, mode="legacy") as client:
        await client.list_tools()
        for tool, arguments in calls:
            await client.call_tool(tool, arguments)
anyio.run(main)
"""

HONEST = ["/data/a.txt", "/data/b.txt", "/nonexistent/file.txt"]
LIES = ["/data/liar.txt", "/data/coward.txt"]


def _session(paths):
    for path in paths:
        yield "validate", {"tool": "read_file", "arguments": {"path": path}}
        yield "read_file", {"path": path}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Three sessions with a real server, recorded by the recorder and scored."""
    folder = tmp_path_factory.mktemp("validating")
    plans = [HONEST + LIES, HONEST, [*HONEST, "/mute"]]
    plans[0].append("/data/a.txt")
    calls = [list(_session(paths)) for paths in plans]
    calls[0].append(("read_file", {"path": "/never/validated"}))
    record = ["-m", "mcptally", "record", "--out", str(folder / "traces"), "--name", "validating"]
    command = [sys.executable, *record, "--", sys.executable, str(SERVER)]
    subprocess.run(
        [sys.executable, "-c", CLIENT, json.dumps(calls), *command], check=True, timeout=60
    )
    mt.score([folder / "traces"], out=folder / "store")
    return mt.open_store(folder / "store")


def rows(store, sql):
    return store.sql(sql).to_arrow_table().to_pylist()


def validated(store, arguments, tool="read_file", server="validating"):
    return dry_run.validate(store, server=server, tool=tool, arguments=arguments)


@pytest.mark.slow
def test_validator_honesty_compares_validations_with_the_outcomes_of_calls(store):
    (row,) = rows(store, "SELECT * FROM validator_honesty")
    assert (row["server"], row["phase"]) == ("validating", "semantic")
    assert (row["validations"], row["said_valid"], row["said_invalid"]) == (13, 8, 5)
    assert row["validated_calls"] == 13
    # Reported as valid: `a` and `b` three times, `a` once more, and the liar. Reported as invalid:
    # the missing path three times, the coward and the mute.
    assert (row["valid_and_worked"], row["valid_and_failed"]) == (7, 1)
    assert (row["invalid_and_failed"], row["invalid_and_worked"]) == (3, 2)
    assert row["valid_worked"] == pytest.approx(7 / 8)
    assert row["invalid_precision"] == pytest.approx(3 / 5)
    assert row["invalid_recall"] == pytest.approx(3 / 4)
    for name in ("valid_worked", "invalid_precision", "invalid_recall"):
        assert 0 <= row[f"{name}_low"] < row[name] < row[f"{name}_high"] <= 1
        assert row[f"{name}_insufficient_data"] is True


@pytest.mark.slow
def test_a_validation_applies_only_to_calls_with_the_same_tool_and_arguments(store):
    (row,) = rows(
        store,
        "SELECT count(*) AS calls, count(validated_by) AS known FROM seed_scores WHERE tool = 'read_file'",
    )
    assert row == {"calls": 14, "known": 13}


@pytest.mark.slow
def test_failures_that_the_servers_own_answer_would_have_prevented(store):
    (row,) = rows(store, "SELECT * FROM preventable_failures WHERE tool = 'read_file'")
    assert (row["failed"], row["prevented"], row["by_native_answer"]) == (5, 3, 3)
    assert (row["ok"], row["blocked"]) == (9, 2)
    assert row["preventable"] == pytest.approx(3 / 5)
    assert row["blocked_share"] == pytest.approx(2 / 9)


@pytest.mark.slow
def test_invalid_and_vague_answers_become_findings(store):
    found = rows(store, "SELECT rule, evidence FROM findings WHERE rule LIKE 'validation.%'")
    assert sorted((f["rule"], f["evidence"]) for f in found) == [
        ("validation.invalid_without_errors", None),
        ("validation.vague_error", "Invalid path"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "valid", "errors"),
    [
        ("/data/a.txt", True, []),
        ("/nonexistent/file.txt", False, ["Path does not exist: /nonexistent/file.txt"]),
        ("/data/liar.txt", True, []),
    ],
)
def test_a_recorded_answer_of_the_server_takes_precedence(store, path, valid, errors):
    answer = validated(store, {"path": path})
    assert (answer.valid, answer.errors) == (valid, errors)
    assert answer.source.startswith("the server's own answer of 20")


@pytest.mark.slow
def test_without_a_recorded_answer_earlier_calls_are_the_evidence(store):
    answer = validated(store, {"path": "/never/validated"})
    assert answer.valid
    (warning, again) = answer.warnings
    assert warning.startswith("Parameter \"path\": the path '/never/validated' failed on 20")
    assert "Path does not exist: /never/validated" in warning
    assert again.startswith("The same call failed on 20")


@pytest.mark.slow
def test_a_path_that_worked_elsewhere_is_unchecked_with_its_date(store):
    answer = validated(store, {"path": "/data/a.txt", "content": "x"}, "write_file")
    assert answer.valid
    (warning,) = answer.warnings
    assert warning.startswith(
        "Unchecked offline: whether the path '/data/a.txt' exists; it worked on 20"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "tool", "arguments", "error"),
    [
        ("validatin", "read_file", {}, "Unknown server: validatin; did you mean validating?"),
        ("validating", "read_fil", {}, "Unknown tool: read_fil; did you mean read_file"),
        ("validating", "read_file", {}, "Missing required parameter: path"),
        ("validating", "read_file", {"path": 5}, 'Parameter "path": expected string, got integer'),
        ("validating", "read_file", [], "Arguments: expected object, got array"),
        ("validating", "read_file", {"path": "a\0b"}, 'Parameter "path": contains a NUL character'),
    ],
)
def test_errors_are_specific(store, server, tool, arguments, error):
    answer = validated(store, arguments, tool, server)
    assert not answer.valid
    assert answer.errors[0].startswith(error)


@pytest.mark.slow
def test_the_command_prints_the_answer_and_its_exit_code_is_the_result(store):
    about = ("--server", "validating", "--tool", "read_file")
    done = run("validate", store.path, *about, "--arguments", '{"path": "/data/a.txt"}')
    assert (done.returncode, json.loads(done.stdout)) == (
        0,
        {"valid": True, "errors": [], "warnings": []},
    )
    assert done.stderr.startswith("source: the server's own answer of 20")
    done = run("validate", store.path, *about, "--arguments", '{"pat": "x"}')
    answer = json.loads(done.stdout)
    assert done.returncode == 1
    assert list(answer) == ["valid", "errors", "warnings"]
    assert answer["errors"] == ["Missing required parameter: path"]
    assert answer["warnings"] == ['Parameter "pat": is not in the schema; did you mean path?']
    assert run(*about, "--arguments", "{").returncode == 2


@pytest.mark.slow
def test_the_method_is_recognised_like_the_tool(tmp_path):
    ask = {"tool": "read", "arguments": {"b": 1, "a": 2.0}}
    answer = {"valid": False, "errors": ["Path /x does not exist"], "warnings": []}
    messages = t.exchange(
        *(t.request(1, "tools/validate", **ask), t.result(1, **answer)),
        *(t.call(2, "read", a=2.0, b=1), t.text(2, "gone", isError=True)),
    )
    mt.score([t.write(tmp_path / "a.jsonl", [t.opened(), *messages])], out=tmp_path / "store")
    store = mt.open_store(tmp_path / "store")
    (row,) = rows(store, "SELECT native, tool, valid, errors, phase FROM validations")
    assert row == {
        "native": "method",
        "tool": "read",
        "valid": False,
        "errors": ["Path /x does not exist"],
        "phase": "semantic",
    }
    (row,) = rows(
        store,
        "SELECT validated_as, outcome FROM calls JOIN seed_scores s USING (call_id) "
        "WHERE calls.tool = 'read'",
    )
    assert row == {"validated_as": False, "outcome": "tool_error"}


@pytest.mark.slow
def test_a_validation_in_another_recording_counts_for_an_hour(tmp_path):
    ask = t.request(1, "tools/call", name="validate")
    ask["params"]["arguments"] = {"tool": "read", "arguments": {"p": 1}}
    validated = (ask, t.text(1, '{"valid":true,"errors":[],"warnings":[]}'))

    def recording(name, hours):
        for file, messages, late in (
            (name, validated, 0),
            (f"{name}x", (t.call(2, "read", p=1), t.text(2, "x")), int(hours * 3600 * 10**9)),
        ):
            events = [t.opened(file), *t.exchange(*messages, recording=file)]
            events = [event | {"ts_ns": event["ts_ns"] + late} for event in events]
            t.write(tmp_path / f"{file}.jsonl", events)

    recording("near", 0.5)
    first = mt.score([tmp_path], out=tmp_path / "s1", partition_bytes=1)
    store = mt.open_store(first.out)
    assert rows(store, "SELECT validated_as FROM seed_scores WHERE tool = 'read'") == [
        {"validated_as": True}
    ]
    (tmp_path / "nearx.jsonl").unlink()
    recording("far", 1.5)
    store = mt.open_store(
        mt.score([tmp_path / "farx.jsonl", tmp_path / "far.jsonl"], out=tmp_path / "s2").out
    )
    assert rows(store, "SELECT validated_as FROM seed_scores WHERE tool = 'read'") == [
        {"validated_as": None}
    ]


@pytest.mark.parametrize(
    ("text", "given", "vague"),
    [
        ("Invalid path", {"path": "/a"}, True),
        ("Validation failed", {}, True),
        ("Bad request", {"n": 5}, True),
        ("Path /data does not exist", {"path": "/data"}, False),
        ("path is required", {"path": None}, False),
        ("Missing required parameter: path", {}, False),
        ("Unknown city Atlantis", {"city": "Atlantis"}, False),
        ("must be at most 100", {}, False),
    ],
)
def test_an_error_is_vague_when_it_names_nothing(text, given, vague):
    assert validation_texts.is_vague(text, given) == vague


PHASES = [
    (rule.phase, kind, text)
    for rule in validation_texts.phases()
    for kind in ("fires", "silent")
    for text in getattr(rule, kind)
]


@pytest.mark.parametrize(("phase", "kind", "text"), PHASES)
def test_the_text_of_an_answer_shows_its_phase(phase, kind, text):
    assert (validation_texts.phase([text]) == phase) == (kind == "fires")


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("* * * * *", True),
        ("*/15 0-6,22 1,15 JAN-MAR mon-fri", True),
        ("0 9 * * 1#2", True),
        ("0 0 L * ?", True),
        ("0 0/5 14 ? * MON 2030", True),
        ("0 0 * * FRI-MON", True),
        ("0 10 * * ? *", True),
        ("0 10 ? * MON-FRI 2030", True),
        ("0 10 * * ? 1", False),
        ("@daily", True),
        ("@never", False),
        ("@every 1h30m", True),
        ("@every 1.5h", True),
        ("@every 5 minutes", False),
        ("@every 5mb", False),
        ("60 * * * *", False),
        ("* 24 * * *", False),
        ("* * 0 * *", False),
        ("0 0 1 1 0", True),
        ("59 23 31 12 7", True),
        ("* * 32 * *", False),
        ("* * * 0 *", False),
        ("* * * 0-3 *", False),
        ("* * * 13 *", False),
        ("* * * * 8", False),
        ("*/0 * * * *", False),
        ("5-1 * * * *", False),
        ("* * * *", False),
        ("every day", False),
        ("1,,2 * * * *", False),
    ],
)
def test_cron_expressions_are_accepted_or_rejected(text, valid):
    assert (cron.syntax_error(text) is None) == valid


def schema(**properties):
    return json.dumps({"type": "object", "properties": properties})


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("properties", "arguments", "levels"),
    [
        ({"url": TEXT}, {"url": "https://example.com/a?b=c"}, ["unchecked"]),
        ({"url": TEXT}, {"url": "http://127.0.0.1:9/x.pdf"}, ["unchecked"]),
        ({"url": TEXT}, {"url": "https://"}, ["error"]),
        ({"url": TEXT}, {"url": "htp://x"}, ["error"]),
        ({"url": TEXT}, {"url": "http://a:port/"}, ["error"]),
        ({"url": TEXT}, {"url": "example.com"}, ["warning"]),
        ({"page": TEXT | {"format": "uri"}}, {"page": "not a url"}, ["error"]),
        ({"when": TEXT | {"format": "date-time"}}, {"when": "2025-02-30T00:00:00Z"}, ["error"]),
        ({"to": TEXT | {"format": "email"}}, {"to": "nobody"}, ["error"]),
        ({"cron": TEXT}, {"cron": "61 * * * *"}, ["error"]),
        ({"schedule": TEXT}, {"schedule": "every day at 9am"}, []),
        ({"schedule": TEXT}, {"schedule": "0 25 * * *"}, ["error"]),
        ({"sql": TEXT}, {"sql": "SELECT a FROM t WHERE b = 1"}, []),
        ({"sql": TEXT}, {"sql": "SELECT * FROM t"}, ["warning"]),
        ({"sql": TEXT}, {"sql": "SELEC a FROM t"}, ["error"]),
        ({"sql": TEXT}, {"sql": "SELECT `a` FROM t LIMIT 5, 5"}, ["unchecked"]),
        ({"query": TEXT}, {"query": "cats and dogs"}, []),
        ({"query": TEXT | {"description": "SQL to run"}}, {"query": "cats and"}, ["error"]),
        ({"tool": TEXT}, {"tool": "read file!"}, ["error"]),
        ({"tool": TEXT}, {"tool": "nobody"}, ["warning"]),
        ({"path": TEXT}, {"path": "a\0"}, ["error"]),
        ({"items": {"type": "array", "items": {"type": "object", "properties": {"url": TEXT}}}}, {"items": [{"url": "https://"}]}, ["error"]),
        ({"n": {"type": "integer"}}, {"n": 5}, []),
    ],
)  # fmt: skip
def test_the_meaning_of_arguments_is_checked(properties, arguments, levels):
    found = argument_semantics.semantic_remarks(
        schema(**properties), arguments, tools=frozenset({"read"})
    )
    assert [remark.level for remark in found] == levels


def test_sql_is_parsed_and_never_run(tmp_path):
    target = tmp_path / "x.csv"
    text = f"COPY (SELECT 1 AS a) TO '{target}'"
    assert not list(argument_semantics.semantic_remarks(schema(sql=TEXT), {"sql": text}))
    argument_semantics.tables_in_sql(text)
    assert not target.exists()
