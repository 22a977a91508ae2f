"""Each predefined question equals its reference answer in plain Python."""

import re
from collections import defaultdict
from pathlib import Path
from typing import get_args

import pytest

import mcptally as mt
from mcptally import errors
from mcptally.analytics.views import Question, displayed_columns, question_titles
from tests.analytics import reference_answers
from tests.analytics.conftest import plain_rows

KEYS = {
    "clients": ("client", "client_version"),
    "finding_counts": ("rule", "severity", "about"),
    "hidden_errors": ("server", "tool", "hidden_rule"),
    "latency_histogram": ("server", "tool", "bin"),
    "drift": ("server", "tool", "definition"),
    "protocol_versions": ("protocol_version", "protocol_source"),
    "schema_violations": ("server", "tool", "side", "state", "path"),
    "sessions": ("session", "recording"),
    "slowest_calls": ("server", "tool", "rank"),
}


def keyed(name, rows):
    keys = KEYS.get(name, ("server", "tool"))
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return found


def agree(name, answer, plain):
    asked, expected = keyed(name, answer), keyed(name, plain)
    assert asked.keys() == expected.keys()
    for key, [wanted] in expected.items():
        got = asked[key]
        # The answer has a row per error, the reference one: the counts are summed.
        for column, value in wanted.items():
            if name == "schema_violations" and isinstance(value, int):
                assert sum(row[column] for row in got) == value, (key, column)
            else:
                near = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
                assert [row[column] for row in got] == [near] * len(got), (key, column)


NAMES = [answer.__name__ for answer in reference_answers.ANSWERS]


@pytest.mark.parametrize("name", NAMES)
def test_a_question_equals_the_reference_answer(store: mt.Store, rows, name):
    plain = list(getattr(reference_answers, name)(rows))
    agree(name, store.ask(name).pl().to_dicts(), plain)
    assert plain or name == "drift", "the traffic has no data for this question"


@pytest.mark.slow
def test_questions_about_recorded_traffic_equal_the_reference_answers(corpus_store: mt.Store):
    rows = plain_rows(corpus_store.path)
    for name in NAMES:
        plain = list(getattr(reference_answers, name)(rows))
        agree(name, corpus_store.ask(name).pl().to_dicts(), plain)
        assert plain, "the traffic has no data for this question"


def test_every_question_has_a_reference_answer_or_is_asked_by_another_test():
    others = set(Path(__file__).parents[1].rglob("test_*.py")) - {Path(__file__)}
    words = set(re.findall(r"\w+", " ".join(path.read_text("utf-8") for path in others)))
    untested = {"error_shapes", "seed_tool_scores"}
    assert question_titles().keys() - words - set(NAMES) == untested


@pytest.mark.slow
def test_questions_with_the_same_filters_share_a_connection(store: mt.Store):
    own = mt.open_store(store.path)
    own.ask("latency", since="2020-01-01")
    before = len(own._connections._open)
    own.ask("tool_scores", since="2021-01-01")
    assert len(own._connections._open) == before
    own.ask("latency", until="2090-01-01")
    assert len(own._connections._open) == before + 1


def test_editors_complete_the_names_of_all_questions():
    assert get_args(Question) == tuple(question_titles())


@pytest.mark.parametrize("name", question_titles())
def test_the_columns_to_show_exist(store: mt.Store, name):
    assert set(displayed_columns(name)) <= set(store.ask(name).columns)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "filters",
    [
        pytest.param("since", marks=pytest.mark.slow),
        pytest.param("client", marks=pytest.mark.slow),
        "both",
    ],
)
def test_time_and_client_choose_the_calls_that_count(store: mt.Store, rows, name, filters):
    times = sorted(row["requested_at"] for row in rows["calls"])
    since, until = times[len(times) // 4], times[len(times) // 2]
    given = {"since": {"since": since, "until": until}, "client": {"client": "demo-python"}}
    given["both"] = given["since"] | given["client"]
    asked = store.ask(name, **given[filters]).pl().to_dicts()
    tables = counted(rows, **given[filters])
    agree(name, asked, list(getattr(reference_answers, name)(tables)))


def counted(rows, since=None, until=None, client=None):
    """Return the rows that the filters select."""

    def within(first, last):
        return since is None or (last >= since and first < until)

    calls = [
        row
        for row in rows["calls"]
        if within(row["requested_at"], row["requested_at"]) and client in {None, row["client"]}
    ]
    ids, sessions = {row["call_id"] for row in calls}, {row["session"] for row in calls}
    at = {
        (row["recording"], row["seq"], row["index"])
        for row in rows["messages"]
        if within(row["at"], row["at"]) and (client is None or row["session"] in sessions)
    }
    findings = [
        row
        for row in rows["findings"]
        if (row["call_id"] in ids)
        or (row["call_id"] is None and (row["recording"], row["seq"], row["index"] or 0) in at)
    ]
    tools = [row for row in rows["tools"] if within(row["first_seen"], row["last_seen"])]
    return {"calls": calls, "findings": findings, "tools": tools}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in KEYS])
def test_server_and_tool_choose_rows_without_changing_them(store: mt.Store, name):
    every = store.ask(name).pl().to_dicts()
    server, tool = every[0]["server"], every[0]["tool"]
    mine = store.ask(name, server=server, tool=tool).pl().to_dicts()
    assert mine == [row for row in every if (row["server"], row["tool"]) == (server, tool)]


def test_without_a_server_column_the_server_chooses_the_calls_that_count(store, rows):
    tables = {key: [r for r in rows[key] if r["server"] == "git"] for key in ("calls", "findings")}
    for name in ("clients", "finding_counts", "protocol_versions"):
        plain = list(getattr(reference_answers, name)(tables))
        agree(name, store.ask(name, server="git").pl().to_dicts(), plain)


def test_min_calls_leaves_out_rows_with_fewer_calls(store: mt.Store):
    every = store.ask("latency").pl().to_dicts()
    some = store.ask("latency", min_calls=20).pl().to_dicts()
    assert 0 < len(some) < len(every)
    assert some == [row for row in every if row["calls"] >= 20]


@pytest.mark.slow
def test_a_tool_has_the_same_scores_with_and_without_a_filter(store: mt.Store):
    every = store.ask("tool_scores").pl()
    alone = store.ask("tool_scores", server="git", tool="git_status").pl()
    assert alone.height == 1
    assert alone.equals(every.filter(server="git", tool="git_status"))


@pytest.mark.parametrize(
    ("question", "filters", "error", "words"),
    [
        ("tool_score", {}, errors.QueryError, "did you mean tool_scores"),
        ("latency", {"server": "gti"}, errors.QueryError, "did you mean git"),
        ("latency", {"tool": "git_statsu"}, errors.QueryError, "did you mean git_status"),
        ("latency", {"client": "demo"}, errors.QueryError, "did you mean demo-"),
        ("latency", {"server": "zzzzzz"}, errors.QueryError, "there are: "),
        (
            "latency",
            {"server": "git", "tool": "read_file"},
            errors.QueryError,
            "has no tool 'read_file'; it belongs to filesystem",
        ),
        ("latency", {"since": "yesterday"}, errors.UsageError, "2026-11-21T14:30"),
        ("latency", {"since": "2d", "until": "3d"}, errors.UsageError, "not after since"),
        ("unused_tools", {"min_calls": 3}, errors.UsageError, "does not count calls"),
    ],
)
def test_an_invalid_question_or_filter_is_rejected_with_suggestions(
    store, question, filters, error, words
):
    with pytest.raises(error, match=words):
        store.ask(question, **filters)


MISSPELT = {
    "SELECT infra FROM tool_scores": "'infra'; did you mean infrastructure",
    "SELECT errortext FROM calls": "'errortext'; did you mean error_text",
    "SELECT tool FROM calls WHERE verdcit = 'x'": "'verdcit'; did you mean verdict",
    "SELECT c.failures FROM tool_scores c": "'failures'; did you mean .*tool_failures",
    "SELECT t.failures FROM tool_scores t JOIN calls c USING (server)": "tool_failures",
    "SELECT call_ids FROM (SELECT call_id FROM calls)": "'call_ids'; did you mean call_id",
}


@pytest.mark.parametrize(("query", "words"), MISSPELT.items(), ids=MISSPELT)
def test_a_misspelt_column_suggests_the_right_one(store: mt.Store, query, words):
    with pytest.raises(errors.QueryError, match=f"no column is called .*{words}"):
        store.sql(query)


def test_suggested_columns_do_not_depend_on_earlier_questions(store: mt.Store):
    opened = mt.open_store(store.path)
    opened._connections.kept("tool_scores")  # as for a report: it is a table from now on
    with pytest.raises(errors.QueryError, match=r"'failures'; did you mean .*tool_failures"):
        opened.sql("SELECT c.failures FROM tool_scores c")


@pytest.mark.parametrize("value", ["x' OR 1=1 --", "'; DROP VIEW calls; --", "\x00", "git\n"])
def test_a_filter_is_a_value_and_never_sql(store: mt.Store, value):
    with pytest.raises(errors.QueryError, match="no server is called"):
        store.ask("latency", server=value)


def test_an_answer_is_a_pandas_frame_with_the_extra(store):
    pytest.importorskip("pandas", reason="the extra mcptally[pandas] is not installed")
    frame = store.ask("latency").df()
    assert list(frame.columns) == store.ask("latency").columns
    assert len(frame) == len(store.ask("latency").fetchall())
