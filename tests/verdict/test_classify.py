"""Verdicts on error texts of many kinds, none of them from the labelled files."""

import tomllib
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcptally.verdict import classify, judge

FRAME = {"outcome": pl.String, "error_text": pl.String, "error_code": pl.Int64}


def judged(*calls: dict[str, object]) -> list[tuple[str, str]]:
    """Return verdict and reason of each call; judging many takes hardly longer than one."""
    rows = [{"outcome": "tool_error", **call} for call in calls]
    return judge(pl.DataFrame(rows, infer_schema_length=None)).select("verdict", "reason").rows()


FAULTS = [
    ("401 Bad credentials", "account"),
    ("You have exceeded your monthly quota", "account"),
    ("You are not allowed to delete invoices (role: clerk)", "account"),
    ("403 Forbidden", "account"),
    ("Only SELECT queries are allowed", "caller"),
    ("Access denied - path outside allowed directories: /etc not in /srv", "caller"),
    ("elicitation via server-initiated requests is unavailable on 2026-07-28 connections", "tool"),
    ("Server-to-client requests are not available on protocol revision 2026-07-28", "tool"),
    ("Client does not support form elicitation", "client"),
    ("getaddrinfo ENOTFOUND api.example.com", "network"),
    ("upstream returned 503 Service Unavailable", "upstream"),
    ("1 validation error for searchArguments\nq\n  Field required [type=missing]", "caller"),
]


def test_the_fault_is_whoever_has_to_change_something():
    rows = [{"outcome": "tool_error", "error_text": text} for text, _ in FAULTS]
    assert judge(pl.DataFrame(rows))["fault"].to_list() == [fault for _, fault in FAULTS]


def verdicts_of(*calls: dict[str, object]) -> list[str]:
    return [verdict for verdict, _ in judged(*calls)]


TEXTS = tomllib.loads(Path(__file__).with_name("error_causes.toml").read_text(encoding="utf-8"))
CAUSES = [*map(tuple, TEXTS["causes"]), (None, "ambiguous"), ("", "ambiguous")]


def test_an_error_text_gets_the_verdict_of_its_cause():
    verdicts = verdicts_of(*({"error_text": text} for text, _ in CAUSES))
    assert list(zip((text for text, _ in CAUSES), verdicts, strict=True)) == CAUSES


def test_error_texts_of_known_runtimes_and_libraries_get_their_verdict():
    words = tomllib.loads(Path(__file__).with_name("known_words.toml").read_text(encoding="utf-8"))
    expected = [(text, verdict) for verdict, texts in words.items() for text in texts]
    verdicts = verdicts_of(*({"error_text": text} for text, _ in expected))
    assert list(zip((text for text, _ in expected), verdicts, strict=True)) == expected


OTHER_LANGUAGES = [tuple(row) for row in TEXTS["other_languages"]]


def test_texts_in_other_languages_get_verdict_and_reason():
    found = judged(*({"error_text": text} for text, _, _ in OTHER_LANGUAGES))
    assert [(row[0], *got) for row, got in zip(OTHER_LANGUAGES, found, strict=True)] == (
        OTHER_LANGUAGES
    )


BROWSER = [tuple(row) for row in TEXTS["browser"]]


def test_browser_errors_of_the_ui_seed_have_their_own_reasons():
    found = judged(*({"error_text": text} for text, _ in BROWSER))
    assert [(text, reason) for (text, _), (_, reason) in zip(BROWSER, found, strict=True)] == (
        BROWSER
    )


def test_a_failure_of_code_that_the_caller_sent_is_business():
    trace = (
        'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\nKeyError: 1'
    )
    assert verdicts_of(
        {"error_text": trace, "arguments": '{"code": "d[1]"}'},
        {"error_text": trace.replace("<string>", "/srv/a.py"), "arguments": '{"q": 1}'},
    ) == ["business", "tool_failure"]


def test_the_words_of_a_code_are_evidence():
    texts = ("The request was unsuccessful (network_error)", '{"error": "NETWORK_ERROR"}')
    assert {judged({"error_text": text})[0][0] for text in texts} == {"infrastructure"}


def test_arguments_that_violate_the_schema_decide_a_vague_error():
    vague = {"error_text": "Error executing tool add"}
    assert verdicts_of(
        vague | {"input_schema_state": "invalid"}, vague | {"input_schema_state": "valid"}
    ) == ["business", "ambiguous"]


def test_a_vague_error_while_all_other_calls_fail_is_an_outage():
    vague = {"error_text": "Failed to load"}
    assert verdicts_of(
        vague | {"concurrent_failure_share": 1.0}, vague | {"concurrent_failure_share": 0.1}
    ) == ["infrastructure", "ambiguous"]


WITHOUT_RESPONSE = [
    ({"outcome": "timeout"}, "infrastructure"),
    ({"outcome": "no_response", "exit_code": 1}, "tool_failure"),
    ({"outcome": "no_response", "signal": 11}, "tool_failure"),
    ({"outcome": "no_response", "signal": 9}, "infrastructure"),
    ({"outcome": "no_response", "exit_code": -6}, "tool_failure"),
    ({"outcome": "no_response", "exit_code": -9}, "infrastructure"),
    ({"outcome": "no_response", "closed": True}, "infrastructure"),
    ({"outcome": "no_response"}, "ambiguous"),
]


def test_a_call_without_response_is_judged_by_the_end_of_the_recording():
    verdicts = verdicts_of(*(row for row, _ in WITHOUT_RESPONSE))
    assert list(zip((row for row, _ in WITHOUT_RESPONSE), verdicts, strict=True)) == (
        WITHOUT_RESPONSE
    )


TEXTS = st.one_of(
    st.none(),
    st.text(max_size=400),
    st.lists(
        st.sampled_from(
            [e for r in classify.failure_rules() for e in r.fires if isinstance(e, str)]
        ),
        max_size=4,
    ).map(" ".join),
)


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 5)
@given(st.lists(TEXTS, min_size=2, max_size=24))
def test_any_text_gets_a_verdict_that_does_not_depend_on_the_other_calls_of_the_batch(
    texts: list[str | None],
):
    def judged(some: list[str | None]) -> pl.DataFrame:
        frame = pl.DataFrame(
            {"outcome": ["tool_error"] * len(some), "error_text": some}, schema_overrides=FRAME
        )
        return judge(frame)

    verdicts, half = judged(texts), len(texts) // 2
    assert verdicts.height == len(texts)
    assert verdicts["verdict"].null_count() == 0
    assert verdicts["certainty"].is_between(0, 100).all()
    assert verdicts.rows() == judged(texts[:half]).rows() + judged(texts[half:]).rows()


@pytest.mark.parametrize(
    "error", ["Invalid API key: connect ECONNREFUSED", "connect ECONNREFUSED ::1 timed out"]
)
def test_the_first_matching_rule_decides(error: str):
    frame = pl.DataFrame({"outcome": ["tool_error"], "error_text": [error]})
    assert classify.matching_rules(frame)["rule"][0] == judge(frame)["rule"][0]


def test_an_empty_table_gives_an_empty_table():
    assert judge(pl.DataFrame(schema={"outcome": pl.String})).height == 0
