"""Names in a failure belong to the caller, to an offer of the schema, or to other data."""

import json

import polars as pl
import pytest

from mcptally.verdict.classify import MOST_BY_WORDS, judge

pytestmark = pytest.mark.slow

LANGUAGES = {"properties": {"languageId": {"enum": ["php", "python", "javascript", "bash"]}}}
ORGANISATION = {"properties": {"org": {"type": "string"}}}


def verdict(text: str, arguments: dict, schema: dict | None = None, **facts: object) -> dict:
    call = {"outcome": "tool_error", "error_text": text, "arguments": json.dumps(arguments)}
    if schema is not None:
        call |= {"input_schema": json.dumps(schema), "input_schema_state": "valid"}
    return judge(pl.DataFrame([call | facts])).row(0, named=True)


@pytest.mark.parametrize(
    "text",
    [
        "/bin/sh: 1: php: not found",
        "spawn php ENOENT",
        "spawnSync /usr/bin/php ENOENT",
        "Error: Command failed: php /tmp/x.php\n/bin/sh: line 1: php: command not found",
        "'php' is not recognized as an internal or external command",
        'exec: "php": executable file not found in $PATH',
    ],
)
def test_a_missing_program_that_the_schema_offers_is_the_tools_fault(text):
    found = verdict(text, {"languageId": "php", "code": "<?php echo 'php';"}, LANGUAGES)
    assert (found["verdict"], found["reason"]) == (
        "tool_failure",
        "misconfig_or_missing_dependency",
    )


def test_an_interpreter_of_a_language_that_the_schema_offers_is_the_tools():
    arguments = {"languageId": "javascript", "code": "1 + 1"}
    assert verdict("/bin/sh: 1: node: not found", arguments, LANGUAGES)["fault"] == "tool"
    assert verdict("spawn python3 ENOENT", {"languageId": "python"}, LANGUAGES)["fault"] == "tool"


def test_a_missing_command_in_the_callers_own_script_is_the_callers():
    script = {"languageId": "bash", "code": "frobnicate -x"}
    assert verdict("bash: frobnicate: command not found", script, LANGUAGES)["fault"] == "caller"
    program = {"languageId": "python", "code": "os.system('frobnicate')"}
    found = verdict("sh: 1: frobnicate: not found", program, LANGUAGES)
    assert found["rule"] != "verdict.misconfig.offered-program"


@pytest.mark.parametrize(
    ("text", "arguments", "fault"),
    [
        ("NameError: name 'total' is not defined", {"code": "print(total)"}, "caller"),
        ("NameError: 'undefined_name'", {"code": "undefined_name"}, "caller"),
        ("ModuleNotFoundError: No module named 'pandaz'", {"cell": "import pandaz"}, "caller"),
        ("ReferenceError: nosuch is not defined", {"function": "() => nosuch()"}, "caller"),
        ("NameError: name 'total' is not defined", {"city": "Rome"}, "tool"),
        ("name 'limit' is not defined", {"limit": 5}, "tool"),
        ("No module named 'docx'", {"path": "/srv/report.docx"}, "tool"),
        ("name 'data' is not defined", {"task": "sort the data by year"}, "tool"),
    ],
)
def test_an_undefined_name_is_the_callers_if_its_program_uses_it(text, arguments, fault):
    found = verdict(text, arguments)
    assert found["fault"] == fault
    assert (found["reason"] == "user_payload_error") == (fault == "caller")


def test_a_validator_of_other_data_than_the_arguments_is_not_about_the_caller():
    page = "1 validation error for TeamList\n  Invalid JSON: expected value at line 1 column 1 "
    page += "[type=json_invalid, input_value=b'<!DOCTYPE html>', input_type=bytes]"
    assert verdict(page, {"org": "a"}, ORGANISATION)["verdict"] == "infrastructure"
    field = "1 validation error for TeamList\n{}\n  Field required [type=missing, input_value={{}}"
    other = verdict(field.format("teams.0.id"), {"org": "a"}, ORGANISATION)
    assert other["rule"] == "verdict.crash.foreign-model"
    assert verdict(field.format("org"), {}, ORGANISATION)["verdict"] == "business"
    reply = field.replace("{{}}", "{{'id': 7}}").format("org")
    assert verdict(reply, {"org": "a"}, ORGANISATION)["rule"] == "verdict.crash.foreign-model"
    whole = "1 validation error for TeamInput\n  Value error, give org or id [type=value_error]"
    assert verdict(whole, {"team": "a"}, ORGANISATION)["verdict"] == "business"
    nested = {"command": {"thread_id": 42}}
    found = verdict(field.format("action.thread_id"), nested, ORGANISATION)
    assert found["verdict"] == "business"


@pytest.mark.parametrize(
    ("text", "arguments", "schema"),
    [
        ("project_id required (or set TRACKER_ID in .env)", {}, {"project_id": {}}),
        ("project_id and suite_id required (or set in .env)", {"limit": 5}, {"project_id": {}}),
        ("project_id required (or set TRACKER_ID in .env)", {"project_id": 0}, {"project_id": {}}),
        ("No connection ID provided, and no default is set up", {}, {"connectionId": {}}),
    ],
)
def test_an_argument_that_the_schema_has_is_missing_by_the_callers_mistake(text, arguments, schema):
    assert verdict(text, arguments, {"properties": schema})["rule"] == (
        "verdict.refusal.lacks-argument"
    )


@pytest.mark.parametrize(
    ("text", "arguments", "schema"),
    [
        ("TRACKER_URL required (set it in .env)", {}, {"project_id": {}}),
        ("api_key required (or set TRACKER_KEY in .env)", {}, {"api_key": {}}),
        ("project_id required in the config file", {"project_id": 7}, {"project_id": {}}),
    ],
)
def test_a_setting_that_no_argument_replaces_is_missing_on_the_server(text, arguments, schema):
    assert verdict(text, arguments, {"properties": schema})["verdict"] == "tool_failure"


def test_a_check_of_a_default_that_the_schema_offers_is_not_about_the_caller():
    text, key = "expire must be integer, got None", {"key": "a"}
    schema = {"properties": {"key": {}, "expire": {"default": None}}}
    assert verdict(text, key, schema)["verdict"] == "tool_failure"
    assert verdict(text, key | {"expire": "soon"}, schema)["verdict"] == "business"
    without_default = {"properties": {"key": {}, "expire": {}}}
    assert verdict(text, key, without_default)["verdict"] == "business"


def test_what_the_caller_named_is_not_connected_by_the_callers_choice():
    found = verdict("Notebook 'zz' is not connected", {"notebook": "zz"})
    assert (found["verdict"], found["reason"]) == ("business", "precondition_state")
    assert verdict("Blender add-on is not connected", {"a": 1})["verdict"] == "infrastructure"


def test_words_alone_claim_less_than_words_with_a_second_source():
    text = "The parcel was not found in any of our warehouses"
    assert verdict(text, {"weight": 5})["certainty"] <= MOST_BY_WORDS
    named = verdict("No parcel 'K-17' was found", {"parcel": "K-17"}, {}, tool_record="mostly")
    assert named["certainty"] > MOST_BY_WORDS


def test_what_a_path_alone_means_is_not_sure_whatever_the_archive_says():
    found = verdict("/srv/repo", {"path": "/srv/repo"}, {}, tool_record="mostly")
    assert found["certainty"] <= MOST_BY_WORDS


def test_arguments_that_were_validated_and_not_sent_are_known_to_be_none():
    text = "Client was passed a null or undefined query"
    call = {"outcome": "tool_error", "error_text": text, "arguments": None}
    rows = [call, call | {"input_schema_state": "valid"}]
    found = judge(pl.DataFrame(rows, schema_overrides={"arguments": pl.String}, strict=False))
    assert found["verdict"].to_list() == ["ambiguous", "business"]


def test_a_command_that_the_backend_lacks_is_the_servers_whatever_else_is_quoted():
    text = "Error setting '$' in 'k': unknown command 'JSON.SET', with args beginning with: 'k'"
    assert verdict(text, {"path": "$", "name": "k"})["verdict"] == "tool_failure"
    assert verdict(text, {"command": "JSON.SET k"})["verdict"] == "business"
