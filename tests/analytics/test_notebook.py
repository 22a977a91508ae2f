"""Answers and calls as a notebook shows them."""

import re
from pathlib import Path

import pytest

import mcptally as mt
from mcptally.analytics import answer, notebook
from tests.output.html import parsed_page
from tests.transcripts import c2s, call, opened, s2c, text, write

pytestmark = pytest.mark.slow

AWS_KEY = "AKIAIOSFODNN7EXAMPLE"
HOSTILE = f"<script>alert(1)</script> {AWS_KEY} \x1b[2J\u202e"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> mt.Store:
    folder: Path = tmp_path_factory.mktemp("notebook")
    events = [opened(server="demo")]
    for number in range(1, 31):
        events.append(c2s(2 * number - 1, call(number, f"tool{number}", path=HOSTILE)))
        reply = (
            text(number, f"Error: {HOSTILE}", isError=True) if number % 2 else text(number, "ok")
        )
        events.append(s2c(2 * number, reply))
    events += [opened("r2", server="other"), c2s(1, call(1, "read", path="a" * 5000), "r2")]
    mt.score([write(folder / "x.jsonl", events)], out=folder / "store")
    return mt.open_store(folder / "store")


def shown(value: mt.Answer | mt.Explanation) -> tuple[str, str]:
    """Return the HTML and the text of a value, after checking that both are safe."""
    bundle = value._repr_mimebundle_()
    html, plain = bundle["text/html"], bundle["text/plain"]
    for output in (html, plain):
        assert AWS_KEY not in output
        assert not set("\x1b\u202e") & set(output)
    assert "<script" not in html
    parsed_page.ParsedPage(html)
    return html, plain


def test_an_answer_is_a_table_with_secrets_masked_and_markup_escaped(store: mt.Store):
    html, plain = shown(store.sql("SELECT error_text FROM calls WHERE error_text IS NOT NULL"))
    for output in (html, plain):
        assert "error_text" in output
        assert "[redacted:" in output
    assert "&lt;script&gt;" in html


def test_a_predefined_answer_shows_its_columns_of_a_terminal_and_twenty_rows(store: mt.Store):
    html, plain = shown(store.ask("tool_scores"))
    columns = re.findall(r"<th[^>]*>([^<]*)</th>", html)
    assert columns[:5] == ["server", "tool", "ok", "calls", "success_rate"]
    assert html.count("<tr>") == answer.ROWS + 1
    for output in (html, plain):
        assert "the first 20 rows; .pl() has all" in output
        assert "more columns: .columns has their names" in output
    assert store.ask("tool_scores").pl().height == 31


def test_rates_have_their_interval_and_a_bar(store: mt.Store):
    html, _ = shown(store.ask("server_scores"))
    assert re.search(r"50\.0%<br><small>95 %: \d+\N{EN DASH}\d+, too little data</small>", html)
    assert html.count("width:80px") >= 1


BARS = {
    "the middle": ({"success_rate": 0.5, "success_rate_low": 0.25, "success_rate_high": 1.0}, 39),
    "none": ({"success_rate": 0.0, "success_rate_low": 0.0, "success_rate_high": 0.5}, 0),
    "all": ({"success_rate": 1.0, "success_rate_low": 0.5, "success_rate_high": 1.0}, 78),
    "without an interval": ({"success_rate": 0.5}, 39),
}


@pytest.mark.parametrize(("row", "before"), BARS.values(), ids=BARS)
def test_the_mark_of_a_bar_stands_at_the_value(row: dict[str, float], before: int):
    widths = [
        int(n) for n in re.findall(r"width:(\d+)px", "".join(notebook._bar("success_rate", row)))
    ]
    track, *pieces = widths
    assert track == 80
    assert sum(pieces[:2]) == pytest.approx(before, abs=1)
    assert pieces[2] == 2
    assert sum(pieces) <= 80


def test_counts_and_texts_have_no_bar(store: mt.Store):
    html, _ = shown(store.sql("SELECT 'x' AS tool, 3 AS calls, NULL::DOUBLE AS success_rate"))
    assert "width:80px" not in html


def test_a_filtered_or_limited_answer_is_still_shown_as_an_answer(store: mt.Store):
    asked = store.ask("latency")
    for derived in (asked.limit(3), asked.filter("calls = 1").order("tool"), asked.sort("tool")):
        html, _ = shown(derived)
        assert "<th" in html
    assert asked.limit(3).pl().height == 3
    html, _ = shown(asked.select("tool", "calls"))
    assert re.findall(r"<th[^>]*>([^<]*)</th>", html) == ["tool", "calls"]


def test_an_answer_within_limits_is_shown_as_an_answer(store: mt.Store):
    with store.within(60):
        html, _ = shown(store.ask("tool_scores"))
    assert "more columns" in html


TYPES = "SELECT 1 AS a, 2 AS a, ['<b>'] AS l, INTERVAL 1 DAY AS i, union_value(x := 1) AS u"


@pytest.mark.parametrize("query", [TYPES, "SELECT 1 AS x WHERE false"], ids=["types", "no rows"])
def test_every_answer_can_be_shown(store: mt.Store, query: str):
    html, plain = shown(store.sql(query))
    assert ("no rows" in plain) == ("no rows" in html) == ("false" in query)


def test_a_comparison_is_shown_as_answers(store: mt.Store):
    html, _ = shown(store.compare(store).tools)
    assert "change" in html


def test_a_call_is_shown_as_request_reply_and_evidence(store: mt.Store):
    [(call_id,)] = store.sql("SELECT call_id FROM calls WHERE tool = 'tool1'").fetchall()
    found = store.show(call_id[:12], seed=True)
    assert found.call["call_id"] == call_id
    html, plain = shown(found)
    for output in (html, plain, str(found)):
        for words in ("tools/call tool1", "Reply", "isError", "Verdict", "Scenario of the seed"):
            assert words in output
    assert "&lt;script&gt;" in html
    assert "<b>Request</b>" in html


def test_a_call_without_a_reply_says_so(store: mt.Store):
    [(call_id,)] = store.sql("SELECT call_id FROM calls WHERE tool = 'read'").fetchall()
    html, _ = shown(store.show(call_id))
    assert "No reply" in html
    assert "<details>" in html
    assert "more character" in html
