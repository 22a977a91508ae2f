"""Verdicts on error texts of many kinds, none of them from the labelled files."""

# ruff: noqa: RUF001 - texts as servers write them.

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


CAUSES = [
    # Crashes, by language.
    ("TypeError: 'NoneType' object is not subscriptable", "tool_failure"),
    ("Cannot read properties of null (reading 'id')", "tool_failure"),
    ("runtime error: index out of range [3] with length 3", "tool_failure"),
    ("called `Option::unwrap()` on a `None` value", "tool_failure"),
    (
        'java.lang.NullPointerException: Cannot invoke "a.b()" because "x" is null',
        "tool_failure",
    ),
    ("System.NullReferenceException: Object reference not set to an instance", "tool_failure"),
    ("undefined method `each' for nil:NilClass", "tool_failure"),
    (
        "PHP Fatal error:  Uncaught Error: Call to a member function get() on null",
        "tool_failure",
    ),
    # What a server lacks.
    ("ACME_TOKEN environment variable is required", "tool_failure"),
    ("spawn pdftotext ENOENT", "tool_failure"),
    ("ModuleNotFoundError: No module named 'cv2'", "tool_failure"),
    (
        "Executable doesn't exist at /root/.cache/ms-playwright/chromium-1/chrome",
        "tool_failure",
    ),
    # Networks and upstreams.
    ("getaddrinfo ENOTFOUND api.example.com", "infrastructure"),
    ("httpx.ConnectError: All connection attempts failed", "infrastructure"),
    ('Post "https://x.test": dial tcp 10.0.0.1:443: i/o timeout', "infrastructure"),
    ("upstream returned 503 Service Unavailable", "infrastructure"),
    ("Unexpected token < in JSON at position 0", "infrastructure"),
    ("rpc error: code = Unavailable desc = transport is closing", "infrastructure"),
    ("ERROR 2006 (HY000): MySQL server has gone away", "infrastructure"),
    ("Anthropic API: overloaded_error", "infrastructure"),
    # Refusals.
    ("1 validation error for searchArguments\nq\n  Field required [type=missing]", "business"),
    ("json: cannot unmarshal number into Go struct field A.q of type string", "business"),
    ("unknown variant `x`, expected one of `a`, `b`", "business"),
    ("Repository octo/cat not found", "business"),
    ("You exceeded your current quota", "business"),
    ("rpc error: code = NotFound desc = no row", "business"),
    ("EACCES: permission denied, open '/etc/shadow'", "business"),
    ('duplicate key value violates unique constraint "u"', "business"),
    ("locator.click: Timeout 5000ms exceeded.\n  - waiting for locator('#a')", "business"),
    ("net::ERR_FILE_NOT_FOUND at file:///x", "business"),
    ('password authentication failed for user "app"', "business"),
    ("request to https://x.test/a failed with status 404", "business"),
    # No evidence.
    ("Error executing tool frobnicate", "ambiguous"),
    ("Something went wrong", "ambiguous"),
    (None, "ambiguous"),
    ("", "ambiguous"),
]


def test_an_error_text_gets_the_verdict_of_its_cause():
    verdicts = verdicts_of(*({"error_text": text} for text, _ in CAUSES))
    assert list(zip((text for text, _ in CAUSES), verdicts, strict=True)) == CAUSES


OTHER_LANGUAGES = [
    ("参数错误：日期格式不正确", "business", "validation"),
    ("文件不存在：/tmp/a", "business", "not_found"),
    ("无法连接到服务器", "infrastructure", "network"),
    ("请求超时", "infrastructure", "timeout_or_cancel"),
    ("ファイルが見つかりません", "business", "not_found"),
    ("サーバーに接続できません", "infrastructure", "network"),
    ("Datei nicht gefunden", "business", "not_found"),
    ("Verbindung zum Server fehlgeschlagen", "infrastructure", "network"),
    ("Ungültiger Wert für Feld 'limit'", "business", "validation"),
    ("Utilisateur introuvable", "business", "not_found"),
    ("Erreur de connexion", "infrastructure", "network"),
    ("El archivo no existe", "business", "not_found"),
    ("Error interno", "tool_failure", "internal_error"),
    ("Acesso negado", "business", "permission_policy"),
    ("Não foi possível conectar ao servidor", "infrastructure", "network"),
    ("Файл не найден", "business", "not_found"),
    ("Ошибка сети", "infrastructure", "network"),
    ("사용자를 찾을 수 없습니다", "business", "not_found"),
    ("Errore di rete", "infrastructure", "network"),
]


def test_texts_in_other_languages_get_verdict_and_reason():
    found = judged(*({"error_text": text} for text, _, _ in OTHER_LANGUAGES))
    assert [(row[0], *got) for row, got in zip(OTHER_LANGUAGES, found, strict=True)] == (
        OTHER_LANGUAGES
    )


BROWSER = [
    ("Element not found: No button with text 'Buy'", "element_not_found"),
    ("Navigation timeout of 30000 ms exceeded", "navigation_timeout"),
    (
        "Failed to execute 'querySelector' on 'Document': '##' is not a valid selector",
        "invalid_selector",
    ),
    ("Page not loaded", "page_not_loaded"),
    ("net::ERR_CONNECTION_REFUSED at http://localhost:1", "network"),
]


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
