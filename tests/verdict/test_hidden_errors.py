"""Hidden errors are found in all their forms, and similar texts are not mistaken for them."""

import json
import tomllib
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptally.verdict import find_hidden_errors, hidden_errors, json_paths
from tests.strategies import JSON_VALUES

RESULTS = tomllib.loads(
    Path(__file__).with_name("hidden_error_texts.toml").read_text(encoding="utf-8")
)


def found(text: str | None, **more: object) -> bool:
    return bool(find_hidden_errors(pl.DataFrame([{"text": text, **more}]))["hidden_error"][0])


@pytest.mark.parametrize("text", RESULTS["failures"])
def test_a_result_that_reports_a_failure_is_a_hidden_error(text: str):
    assert found(text)


@pytest.mark.parametrize("text", [None, "", *RESULTS["data"]])
def test_words_of_failure_in_data_are_not_a_hidden_error(text: str | None):
    assert not found(text)


def test_an_echo_of_the_arguments_is_not_a_hidden_error():
    assert found("Error: fake")
    assert not found("Error: fake\n", arguments='{"command": "echo \\"Error: fake\\""}')
    assert found("Error", arguments='{"title": "Error"}')  # too short to be an echo


def test_a_line_of_the_arguments_does_not_make_an_error_after_it_an_echo():
    arguments = '{"code": "select * from t"}'
    assert found("select * from t\nError: no such table: t", arguments=arguments)
    assert not found("on\nError: fake", arguments='{"command": "echo on; echo Error: fake"}')
    assert found("Error: fake\n\nError: other", arguments=arguments[:-1] + "Error: fake")


def test_prose_from_a_tool_that_usually_answers_in_json_is_evidence():
    prose = "Page missing in this book"
    assert not found(prose)
    answers = [{"tool": "t", "text": f'{{"a": {n}}}'} for n in range(20)]
    judged = find_hidden_errors(pl.DataFrame([{"tool": "t", "text": prose}, *answers]))
    assert judged["hidden_error"].to_list() == [True] + [False] * 20


def test_prose_from_a_tool_that_often_answers_in_prose_is_no_evidence():
    forms = [f'{{"a": {n}}}' if n % 2 else f"Page {n}" for n in range(20)]
    prose = "Page missing in this book"
    judged = find_hidden_errors(
        pl.DataFrame([{"tool": "t", "text": text} for text in (prose, *forms)])
    )
    assert not any(judged["hidden_error"])


@pytest.mark.parametrize(
    "rest", ["\nand so on" * 20, " and so on" * 60], ids=["lines", "characters"]
)
def test_words_of_failure_count_in_a_short_text_and_not_in_a_long_one(rest: str):
    assert found("Connection refused by host")
    assert not found("Connection refused by host" + rest)


def test_structured_content_is_read_if_the_text_is_prose():
    assert found("See the structured content.", structured='{"success": false, "error": "x"}')


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ('{"success": false, "error": "disk full", "tip": "y"}', "disk full"),
        ('{"error": "no items", "status": 500}', "no items\nstatus 500"),
        (
            '{"error": {"code": "NO_NET", "message_pt": "Falhou", "message_en": "It failed"}}',
            "NO_NET\nIt failed",
        ),
    ],
    ids=["one", "with a status", "English only"],
)
def test_hidden_text_is_the_message_inside_the_json(result: str, message: str):
    assert find_hidden_errors(pl.DataFrame([{"text": result}]))["hidden_text"][0] == message


def test_a_rule_that_says_it_is_not_a_failure_is_named():
    judged = find_hidden_errors(pl.DataFrame([{"text": "Key not found: k26"}])).row(0, named=True)
    assert judged["hidden_rule"] == "hidden.trap.miss"
    assert judged["hidden_text"] is None
    assert judged["hidden_certainty"] < 50


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('{"a": {"error": "x"}}', 'a.error = "x"'),
        ('[{"error": null}]', "[].error = null"),
        ('{"/tmp/a": {"error": "x"}}', '*.error = "x"'),
        ('{"error": "x", "cut": "of', 'error = "x"\ncut = "of'),
        (r'{"error": "a \"b\"", "cut": [1}', r'error = "a \"b\""'),
        (
            '{"error": {"n": 1, "x": [2.5, "[true]"]}, "ok": false}',
            "ok = false\nerror.n = 1\nerror.x[] = 2.5\nerror.x[][] = true",
        ),
        ("no json, error", ""),
        ('{"fine": 1}', ""),
    ],
)
def test_json_is_written_as_lines_of_path_and_value(text: str, lines: str):
    assert json_paths.lines(pl.Series([text])).to_list() == [lines]


MEMBERS = st.sampled_from(["error", "status", "a", "message"])
ANY = st.one_of(
    st.none(),
    st.text(max_size=200),
    st.dictionaries(MEMBERS, JSON_VALUES, max_size=4).map(json.dumps),
)


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 5)
@given(st.lists(ANY, min_size=1, max_size=40))
def test_any_text_and_any_json_is_judged_without_an_error(texts: list[str | None]):
    frame = pl.DataFrame(
        {"text": texts, "structured": texts[::-1]}, schema_overrides={"text": pl.String}
    )
    judged = find_hidden_errors(frame)
    assert judged.height == len(texts)
    assert judged["hidden_error"].null_count() == 0


def test_every_text_block_of_a_result_is_read():
    response = json.dumps(
        {
            "content": [
                {"type": "text", "text": "Washing hall, 2 November"},
                {"type": "text", "text": "Hall 3"},
                {"type": "text", "text": 'Error: the "booking" system\ndid not respond'},
            ]
        }
    )
    calls = pl.DataFrame({"text": ["Washing hall, 2 November"] * 2, "response": [response, None]})
    calls = calls.with_columns(
        later_texts=hidden_errors.later_texts(pl.col("response"), pl.lit(3))
    ).drop("response")
    results = find_hidden_errors(calls)
    assert results["hidden_error"].to_list() == [True, False]
    assert results["hidden_text"][0] == 'Error: the "booking" system\ndid not respond'


def test_a_later_text_is_cut_after_its_escapes_are_read():
    long = 'He said "text": "no"\\ or\n' * 100
    blocks = [{"type": "text", "text": text} for text in ("first", "", long, "last")]
    calls = pl.DataFrame({"response": [json.dumps({"content": blocks})]})
    later = calls.select(hidden_errors.later_texts(pl.col("response"), pl.lit(4)))
    assert later.item().to_list() == [long[:600], "last"]


def test_a_later_block_that_is_no_failure_changes_nothing():
    calls = pl.DataFrame(
        {"text": ["Hall 3", "Error: closed"], "later_texts": [["No errors found"], ["Hall 4"]]}
    )
    results = find_hidden_errors(calls)
    assert results["hidden_error"].to_list() == [False, True]
    assert results["hidden_text"].to_list() == [None, "Error: closed"]
