"""The question `priorities`: which problems are listed, in which order, and with what evidence."""

from collections import Counter
from datetime import timedelta

import pytest

from mcptally.output.html import problems
from mcptally.tables.values import cell_of
from tests.analytics.built_stores import (
    BEGAN,
    NO_NETWORK,
    OK,
    UNCLEAR,
    Answers,
    Servers,
    build,
    call,
    definition,
)
from tests.analytics.test_timeline import outage

SERVERS = Servers()


def failure(template, fault="tool", **fields):
    """Return the columns that failed calls with the same cause share."""
    verdict = {"tool": "tool_failure", "caller": "business", "account": "business"}
    return {
        "outcome": "tool_error",
        "verdict": verdict.get(fault or "", "infrastructure" if fault else "ambiguous"),
        "fault": fault,
        "reason": None,
        "template": template,
        "error_text": f"Error: {template}",
        "certainty": 95.0,
        **fields,
    }


CRASH = failure("division by zero")
REJECTED = failure("invalid date", "caller")
NO_HOST = failure("getaddrinfo ENOTFOUND", "network", reason="network")
HIDDEN = REJECTED | {"outcome": "hidden_error", "hidden_certainty": 99.0}


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> Answers:
    return SERVERS.build(tmp_path_factory.mktemp("priorities") / "s")


@pytest.fixture(scope="module")
def asked(answers):
    """Return the problems of a server."""
    return lambda server: answers.of(server, "priorities")


def listed(tmp_path, rows, recordings=()):
    """Return the problems of a store with these calls."""
    store = build(tmp_path / "s", rows, recordings=recordings)
    return store.ask("priorities").pl().to_dicts()


def traffic(tool, failed, calls=100, kind=CRASH, **fields):
    """Return calls to a tool, one per session; the first `failed` calls failed."""
    return [
        call(f"{tool}{n}", tool, **(kind if n < failed else OK), **fields) for n in range(calls)
    ]


ONE_CAUSE = SERVERS.add(traffic("a", 20) + traffic("b", 30) + traffic("c", 0))


@pytest.mark.slow
def test_failures_of_a_server_with_one_message_are_one_problem_of_several_tools(asked):
    [row] = asked(ONE_CAUSE)
    assert (row["kind"], row["tools"], row["tool"]) == ("tool_failures", ["b", "a"], None)
    assert (row["affected"], row["calls"], row["ok"]) == (50, 200, 150)
    assert (row["fault"], row["certainty"], row["template"]) == ("tool", 95.0, "division by zero")
    assert row["message"] == "Error: division by zero"
    assert row["rate"] == 0.25
    assert 0.15 < row["rate_low"] < 0.25 < row["rate_high"] < 0.35
    assert not row["insufficient_data"]


BROKEN_FILE = failure("bad JSON at position <n>")
MASKED = [failure(f"Failed to get {what}", None, reason="masked") for what in ("a", "b")]
STATUS = "failed to fetch <url> - status code <n>"
OWN = failure(STATUS, "upstream", error_text="failed to fetch a - status code 500")
THEIRS = failure(STATUS, "caller", error_text="failed to fetch b - status code 400")
UNREADABLE, NO_FUNCTION = (
    failure(f"Parsing failed: {words}", reason="exception_bug")
    for words in ("cannot read <text> of undefined", "r.trim is not a function")
)
NO_PROGRAM = [
    failure(f"unknown command {n}", reason="misconfig_or_missing_dependency") for n in range(3)
]
OLD_INDEX = "the index is out of date"
NO_ITEMS = "the list has no items"
PROBLEMS = {
    "different failures of the tool": (
        traffic("a", 20) + traffic("b", 30, kind=failure("'NoneType' is bad")),
        [("tool_failures", 30, ["b"]), ("tool_failures", 20, ["a"])],
    ),
    "the rare failures of a server share a row": (
        [row for n in range(5) for row in traffic(f"t{n}", 50 - n, kind=failure(f"bug {n}"))],
        [("tool_failures", 93, ["t3", "t4"])]
        + [("tool_failures", 50 - n, [f"t{n}"]) for n in range(3)],
    ),
    "rejected arguments": (
        traffic("a", 40, kind=REJECTED) + traffic("b", 40, kind=failure("no such file", "caller")),
        [("caller", 80, ["a", "b"])],
    ),
    "a server that is misconfigured, whatever the messages": (
        [row for n in range(3) for row in traffic(f"t{n}", 9, 9, NO_PROGRAM[n])],
        [("misconfigured", 27, ["t0", "t1", "t2"])],
    ),
    "a server without its backend, whatever the messages": (
        traffic("a", 20, kind=failure("connect ECONNREFUSED", "upstream", reason="dependency_down"))
        + traffic("b", 20, kind=failure("503", "upstream", reason="upstream_5xx_or_malformed")),
        [("unavailable", 40, ["a", "b"])],
    ),
    "messages that differ in the name of their tool": (
        [
            row
            for tool in ("list_nodes", "list_pods")
            for row in traffic(tool, 9, kind=failure(f"Error executing tool {tool}"))
        ],
        [("tool_failures", 18, ["list_nodes", "list_pods"])],
    ),
    "messages that end alike": (
        traffic("pods", 9, kind=failure(f"cannot list pods: {OLD_INDEX}"))
        + traffic("nodes", 9, kind=failure(f"cannot list nodes: {OLD_INDEX}"))
        + traffic("logs", 9, kind=failure("cannot read logs: the file is torn")),
        [("tool_failures", 18, ["nodes", "pods"]), ("tool_failures", 9, ["logs"])],
    ),
    "messages that differ in a class of exceptions": (
        traffic("a", 9, kind=failure(f"TypeError: {NO_ITEMS}"))
        + traffic("b", 9, kind=failure(NO_ITEMS)),
        [("tool_failures", 18, ["a", "b"])],
    ),
    "tools that fail with the same words are judged as one group": (
        traffic("list", 40, kind=BROKEN_FILE)
        + traffic("get", 9, kind=BROKEN_FILE | {"fault": None, "verdict": "ambiguous"}),
        [("tool_failures", 49, ["list", "get"])],
    ),
    "messages that name no cause share a row": (
        traffic("t", 9, kind=MASKED[0]) + traffic("u", 9, kind=MASKED[1]),
        [("unclear", 18, ["t", "u"])],
    ),
    "messages whose cause is unclear": (
        traffic("t", 9, kind=MASKED[0] | {"reason": None})
        + traffic("u", 9, kind=MASKED[1] | {"reason": None}),
        [("unclear", 9, ["t"]), ("unclear", 9, ["u"])],
    ),
    "the same words with different texts, which are surely different": (
        traffic("t", 12, kind=OWN) + traffic("u", 9, kind=THEIRS),
        [("unavailable", 12, ["t"]), ("caller", 9, ["u"])],
    ),
    "the same words with the same text": (
        traffic("t", 12, kind=OWN)
        + traffic("u", 9, kind=THEIRS | {"error_text": OWN["error_text"]}),
        [("unclear", 21, ["t", "u"])],
    ),
    "crashes in one place of a tool": (
        traffic("t", 20, kind=UNREADABLE)
        + traffic("t", 10, 10, NO_FUNCTION)
        + traffic("u", 9, kind=NO_FUNCTION),
        [("tool_failures", 30, ["t"]), ("tool_failures", 9, ["u"])],
    ),
    "failures of one session count less than those of many": (
        [call("one", "loops", **CRASH) for _ in range(64)]
        + traffic("fails", 20, 64, kind=failure("'NoneType' is bad")),
        [("tool_failures", 20, ["fails"]), ("tool_failures", 64, ["loops"])],
    ),
    "of equally many failures, the larger share comes first": (
        traffic("rare", 10, 1000) + traffic("often", 10, 12, kind=failure("bad state")),
        [("tool_failures", 10, ["often"]), ("tool_failures", 10, ["rare"])],
    ),
    "of equal numbers, tool failures come first, then unmarked errors, then rejections": (
        traffic("refuses", 40, kind=REJECTED)
        + traffic("crashes", 40)
        + traffic("hides", 40, kind=HIDDEN),
        [
            ("tool_failures", 40, ["crashes"]),
            ("unmarked", 40, ["hides"]),
            ("caller", 40, ["refuses"]),
        ],
    ),
    "a cause that is unknown": (traffic("t", 5, kind=UNCLEAR), [("unclear", 5, ["t"])]),
}
"""Calls to a server, and its problems in their order: kind, failed calls and tools of each."""


@pytest.mark.parametrize(
    ("server", "expected"),
    [(SERVERS.add(calls), expected) for calls, expected in PROBLEMS.values()],
    ids=PROBLEMS,
)
def test_failures_are_put_into_problems_that_are_ranked_by_what_they_cost(
    asked, answers, server, expected
):
    rows = asked(server)
    assert [(row["kind"], row["affected"], row["tools"]) for row in rows] == expected
    causes = Counter(each["cause"] for each in answers.of(server, "affected_calls"))
    assert causes == {row["cause"]: row["affected"] for row in rows}, "each call has one problem"


UNMARKED = SERVERS.add(traffic("t", 30, kind=HIDDEN) + traffic("u", 20, kind=REJECTED))


def test_unmarked_errors_are_listed_apart_from_rejections_with_both_certainties(asked):
    unmarked, refused = asked(UNMARKED)
    assert (unmarked["kind"], unmarked["affected"], unmarked["unmarked"]) == ("unmarked", 30, 30)
    assert (unmarked["fault"], unmarked["certainty"]) == ("caller", 95.0)
    assert unmarked["hidden_certainty"] == 99.0
    assert (refused["kind"], refused["affected"]) == ("caller", 20)


MIXED = SERVERS.add(
    [call(n, "t", **(CRASH | ({} if n < 60 else {"fault": "caller", "verdict": "business"})))
     for n in range(70)]
)  # fmt: skip


def test_a_template_is_judged_as_a_group_and_disagreement_lowers_the_certainty(asked, answers):
    [row] = asked(MIXED)
    assert (row["kind"], row["fault"], row["affected"]) == ("tool_failures", "tool", 70)
    assert row["certainty"] == pytest.approx(95 * 60 / 70)
    by_id = {each["call_id"]: each for each in answers.of(MIXED, "affected_calls")}
    assert by_id[row["call_id"]]["typical"], "the example has the fault that the row names"


def of_texts(texts, certainty, failed=30):
    """Return failed calls with these texts of one template, each with this certainty."""
    calls = traffic("t", failed, kind=CRASH | {"certainty": certainty})
    return [row | {"error_text": f"a {n % texts}"} for n, row in enumerate(calls)]


DOUBTFUL = SERVERS.add(of_texts(3, 69.0))
SURE = SERVERS.add(of_texts(3, 70.0))


def test_a_claim_that_is_less_than_seventy_percent_certain_names_no_fault(asked):
    [doubtful], [sure] = asked(DOUBTFUL), asked(SURE)
    assert (doubtful["kind"], doubtful["fault"]) == ("unclear", None)
    assert (doubtful["suspected"], doubtful["certainty"]) == ("tool", 69.0)
    assert (sure["kind"], sure["fault"]) == ("tool_failures", "tool")


def test_a_table_has_words_for_an_unknown_fault_and_onset_and_claims_no_certainty(asked):
    [doubtful], [sure] = asked(DOUBTFUL), asked(SURE)
    assert cell_of("fault", doubtful) == "unknown, perhaps tool"
    assert cell_of("fault", doubtful | {"suspected": None}) == "unknown"
    assert cell_of("fault", sure) == "tool"
    assert cell_of("certainty", sure | {"certainty": 99.96}) == "99 %"
    later = sure | {"from_start": False}
    assert cell_of("since", sure) == problems.onset(sure) == "already in the first session"
    assert f"{cell_of('since', later)} UTC" == problems.onset(later)
    assert problems.onset(later).startswith("first seen 20")


UNREACHED = SERVERS.add(
    traffic("a", 20, kind=failure("HTTP 502: connection refused", None, reason="not_connected"))
    + traffic("b", 10, kind=failure("ECONNREFUSED", "upstream", reason="dependency_down"))
)


def test_calls_that_did_not_reach_the_server_are_not_blamed_on_a_service_behind_it(asked):
    unreached, outage = asked(UNREACHED)
    assert (problems.title(unreached), unreached["affected"]) == ("connection refused", 20)
    assert problems.blame(unreached) == (
        "fault: unknown; check the server's URL, and whether it runs"
    )
    assert (outage["fault"], outage["affected"]) == ("upstream", 10)


SINCE = SERVERS.add(outage(kind=NO_NETWORK | NO_HOST | {"template": "connection refused"}))


@pytest.mark.slow
def test_the_onset_is_the_detected_change(asked):
    [row] = asked(SINCE)
    assert row["since"].isoformat() == "2026-03-02T01:00:00+00:00"
    assert row["first_seen"] == row["since"]


def of_client(name):
    """Return calls that fail from the second hour on; `name(later, n)` is a call's client."""
    rows = outage(kind=NO_NETWORK | NO_HOST)
    later = BEGAN + timedelta(hours=1)
    return [row | {"client": name(row["requested_at"] >= later, n)} for n, row in enumerate(rows)]


OTHER_CLIENT = SERVERS.add(of_client(lambda later, _: "new" if later else "old"))
BOTH_CLIENTS_FAIL = SERVERS.add(
    of_client(lambda later, n: "new" if n % 10 < (9 if later else 1) else "old")
)


@pytest.mark.slow
def test_an_onset_that_other_clients_explain_says_so(asked):
    [row], [same], [both] = asked(OTHER_CLIENT), asked(SINCE), asked(BOTH_CLIENTS_FAIL)
    assert [each["client_changed"] for each in (row, same, both)] == [True, False, False]
    assert problems.onset(row) == "since 2026-03-02 01:00 UTC, when other clients called"
    assert problems.onset(both) == "since 2026-03-02 01:00 UTC"


def shared(found):
    """Return the servers of each problem."""
    return sorted(sorted(row["servers"]) for row in found)


LATER = {"requested_at": BEGAN + timedelta(hours=1)}
NEVER_WORKED = traffic("b", 2, 2, server="z") + traffic("b", 9, 9, REJECTED, server="z")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "servers"),
    [
        (traffic("b", 4, 20, server="y"), [["x", "y"]]),
        (traffic("b", 11, 20, server="y"), [["x"], ["y"]]),  # most of its calls fail
        (traffic("b", 4, 4, server="y"), [["x"], ["y"]]),  # none worked
        (traffic("b", 4, 4, server="y") + traffic("b", 4, 4, server="z"), [["x"], ["y", "z"]]),
        (traffic("b", 4, 4, server="y") + NEVER_WORKED, [["x"], ["y", "z"], ["z"]]),
    ],
)
def test_servers_share_a_problem_if_the_same_can_be_said_of_each(tmp_path, other, servers):
    is_new = [row["outcome"] != "ok" and row["template"] == CRASH["template"] for row in other]
    rows = [row | NO_HOST if new else row for row, new in zip(other, is_new, strict=True)]
    rows += traffic("a", 10, server="x", kind=NO_HOST)
    assert shared(listed(tmp_path, rows)) == servers


@pytest.mark.slow
def test_an_onset_is_only_that_of_all_servers_of_a_problem(tmp_path):
    early = traffic("a", 10, server="x", kind=NO_HOST) + traffic("b", 10, server="y", kind=NO_HOST)
    late = [call("z", "c", server="z"), *traffic("c", 10, server="z", kind=NO_HOST, **LATER)]
    [alike] = listed(tmp_path / "alike", early)
    [apart] = listed(tmp_path / "apart", early + late)
    assert (len(alike["servers"]), problems.onset(alike)) == (2, "already in the first session")
    assert (len(apart["servers"]), problems.onset(apart)) == (3, "")


MANY_KINDS = SERVERS.add(
    [
        row
        | {
            "arguments": f'{{"q": {(n + 1) % 7 or 3}}}',
            "requested_at": BEGAN - timedelta(minutes=n),
        }
        for n, row in enumerate(traffic("t", 20, 20))
    ]
)


def test_the_example_is_the_first_call_with_the_most_frequent_arguments(asked, answers):
    [row] = asked(MANY_KINDS)
    calls = answers.of(MANY_KINDS, "affected_calls")
    first = min(calls, key=lambda call: (-call["repeated"], call["requested_at"]))
    assert (row["call_id"], first["repeated"]) == (first["call_id"], 5)


@pytest.mark.parametrize("kind", ["misconfigured", "unavailable", "account", "client"])
def test_a_title_that_names_an_uncertain_cause_says_so(kind):
    row = {"kind": kind, "symptoms": None, "reason": None}
    assert problems.title(row | {"uncertain": True}) == f"probably {problems.TITLES[kind]}"
    assert problems.title(row | {"uncertain": False}) == problems.TITLES[kind]
    refused = {"kind": "caller", "reason": "validation", "uncertain": True}
    assert problems.title(refused) == "refused by the server"


LACKING = [
    row
    for reason in ("client_capability", "http_refused")
    for row in traffic("t", 5, 9, failure(f"said {reason}", "client", reason=reason))
]
REFUSED_HTTP = SERVERS.add(LACKING)


def test_refused_http_requests_have_a_row_and_title_of_their_own(asked):
    titles = {row["reason"]: problems.title(row) for row in asked(REFUSED_HTTP)}
    assert titles == {
        "client_capability": problems.TITLES["client"],
        "http_refused": "HTTP requests refused",
    }


def test_a_problem_says_what_else_failed_and_where_the_fault_is(asked):
    network, lacking = asked(MOSTLY_OFFLINE)
    assert problems.number(network) == "5 of 9 calls; none of the 9 worked"
    assert problems.number(network | {"ok": 4}) == "5 of 9 calls"
    assert problems.number(network | {"affected": 9}) == "9 of 9 calls"
    assert problems.blame(lacking) == "fault: tool (95% sure), in how it is set up"
    assert problems.title(network) == "host name not found"


def outages(*texts):
    """Return failed calls with these error texts and as many calls each."""
    kinds = [
        (failure(f"outage {n}", "upstream", error_text=text), count)
        for n, (text, count) in enumerate(texts)
    ]
    return [row for kind, count in kinds for row in traffic("t", count, count, kind)]


LOCKED = ("database is locked", 8), ("status code 503", 2)
LOCKED_OR_503 = ("database is locked", 7), ("status code 503", 3)
AWAY = ("fetch failed", 7), ("the backend is away", 3)


@pytest.mark.parametrize(
    ("server", "title"),
    [
        (SERVERS.add(outages(*LOCKED)), "mostly database locked"),
        (SERVERS.add(outages(*LOCKED_OR_503)), "database locked or HTTP 5xx from a service"),
        (SERVERS.add(outages(*AWAY)), "service unavailable"),
    ],
)
def test_the_title_of_an_outage_is_what_four_fifths_of_its_calls_report(asked, server, title):
    [row] = asked(server)
    assert problems.title(row) == title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("connect ECONNREFUSED 10.0.0.7:5432", "connection refused"),
        ("canceling statement due to statement timeout", "timeout"),
        ("socket hang up", "connection lost"),
        ("Unexpected token < in JSON", "malformed reply from a service"),
        ("Unable to connect to build01", "service not reached"),
        ("503 Service Unavailable", "HTTP 5xx from a service"),
        ("EACCES: permission denied", "access denied"),
        ("status code 404 after 503 ms", "service unavailable"),
    ],
)
def test_each_kind_of_outage_has_a_title(answers, text, title):
    row = {"kind": "unavailable", "reason": None, "uncertain": False, "other_symptoms": False}
    [[symptom]] = answers.store.sql("SELECT _symptom(?)", params=[text]).fetchall()
    assert problems.title(row | {"symptoms": symptom and [symptom]}) == title


SELDOM = SERVERS.add(traffic("a", 30) + traffic("b", 3) + traffic("c", 2))


def test_a_tool_with_less_than_a_tenth_of_the_most_affected_calls_is_not_named(asked):
    [row] = asked(SELDOM)
    assert problems.subject(row | {"servers": ["x"]}) == "x: a, b and 1 other tool"
    assert row["tools"] == ["a", "b", "c"]


@pytest.mark.slow
def test_one_message_of_several_servers_about_the_network_is_one_problem(tmp_path):
    rows = traffic("a", 10, server="x", kind=NO_HOST) + traffic("b", 20, server="y", kind=NO_HOST)
    rows += traffic("c", 10, server="x") + traffic("d", 10, server="y")
    found = listed(tmp_path, rows)
    [network] = [row for row in found if row["kind"] == "unavailable"]
    assert (network["servers"], network["server"], network["affected"]) == (["y", "x"], None, 30)
    assert (network["rate"], network["server_rates"]) == (None, [0.2, 0.1])
    assert problems.share(network) == "by server: y 20%, x 10%"
    many = network | {
        "servers": list("abcdefg"),
        "server_rates": [0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1],
    }
    assert problems.share(many) == "by server: a 70%, b 60%, c 50%, others 10% to 40%"
    alike = network | {"server_rates": [0.5, 0.5]}
    assert problems.share(alike) == "50% at each server"
    assert sorted(row["server"] for row in found if row["kind"] == "tool_failures") == ["x", "y"]


@pytest.mark.slow
def test_one_defect_is_one_problem_of_servers_that_report_the_same_name(tmp_path):
    kind = failure("'Context' object has no attribute 'ask'")
    rows = [row for server in "xyz" for row in traffic("a", 9, server=server, kind=kind)]
    names = {"x": "shop", "y": "shop", "z": "other"}
    recordings = [life(server, server_name=name) for server, name in names.items()]
    assert shared(listed(tmp_path, rows, recordings)) == [["x", "y"], ["z"]]


@pytest.mark.slow
def test_an_outage_is_one_problem_of_servers_that_cannot_reach_the_same_address(tmp_path):
    refused = failure("connect to <n> refused", "network", reason="network")
    rows = [
        row | {"error_text": f"connect to 10.0.0.7:{port} refused"}
        for server, port in (("x", 5432), ("y", 5432), ("z", 6379))
        for row in traffic(server, 9, 9, refused, server=server)
    ]
    assert shared(listed(tmp_path, rows)) == [["x", "y"], ["z"]]


LATE = SERVERS.add(
    [
        call(n, "t", **(CRASH if n > 3 else OK) | {"requested_at": BEGAN + timedelta(hours=n)})
        for n in range(9)
    ]
)


def test_an_onset_is_the_first_session_if_it_has_the_problem(asked):
    [early], [late] = asked(SURE), asked(LATE)
    assert problems.onset(early) == "already in the first session"
    assert late["since"] is None
    assert problems.onset(late).startswith(f"first seen {BEGAN:%Y-%m-%d} 04:00")


HIDES = SERVERS.add(
    traffic("t", 9, kind=CRASH | {"error_text": "internal error", "stderr_error": "KeyError: 'a'"})
)


def test_the_message_of_a_problem_has_the_exception_that_the_reply_hides(asked):
    [row], [other] = asked(HIDES), asked(SURE)
    assert problems.message(row) == "internal error; on stderr: KeyError: 'a'"
    assert problems.message(other | {"exception": "KeyError: 'a'"}) == other["message"]


def life(server, **fields):
    about = {"recording": server, "server": server, "transport": "stdio", "opened_at": BEGAN}
    return about | {"ended_at": BEGAN, "start": "ok", "noise_lines": 0, "messages": 10} | fields


@pytest.mark.slow
def test_http_servers_that_never_answer_come_first_with_the_reason(tmp_path):
    refused = {"outcome": "no_response", "verdict": "infrastructure", "fault": "upstream"}
    of_http = {"transport": "streamable_http", "start": None, "exchanges": 3}
    rows = traffic("t", 90, server="x")
    rows += [
        call(name, None, server=name, method="initialize", error_text="HTTP 502", **refused)
        for name in ("down", "answered")
    ]
    recordings = [
        life("x"),
        life("down", **of_http, calls=1, unanswered=1, tool_calls=0),
        life("answered", **of_http, calls=2, unanswered=1, tool_calls=0),
        life("only a page was read", **of_http, calls=0, unanswered=0, tool_calls=0),
    ]
    store = build(tmp_path / "s", rows, recordings=recordings)
    assert set(store.ask("server_scores").pl()["server"]) == {"x", "down"}
    first, *others = store.ask("priorities").pl().to_dicts()
    assert problems.statement(first) == (
        "never connected, 3 of 3 HTTP requests failed; fault: upstream; check the server's URL, "
        "and whether it runs; from the first request"
    )
    assert (problems.subject(first), first["message"]) == ("down", "HTTP 502")
    assert [row["servers"] for row in others] == [["x"]]


@pytest.mark.slow
def test_servers_that_never_start_come_first_with_their_last_words(tmp_path):
    no_key = {
        "start": "failed",
        "start_failure": "misconfigured",
        "last_words": "API_KEY is missing",
    }
    recordings = [life("a", **no_key), life("b", **no_key), life("x")]
    ended = BEGAN + timedelta(hours=1)
    recordings.append(life("y", crash="idle", ended_at=ended))
    recordings += [life("z", noise_lines=5), life("w", noise_lines=1)]
    recordings.append(life("v", start="failed", start_failure="network", last_words="no such host"))
    lacks = {"start": "failed", "start_failure": "broken_dependency"}
    modules = {"m": "a' in /srv/m", "n": "a' in /srv/n", "o": "b' in /srv/o"}
    recordings += [life(s, **lacks, last_words=f"No module '{x}") for s, x in modules.items()]
    rows = traffic("t", 90, server="x")
    found = listed(tmp_path, rows, recordings)
    lacking = [row["servers"] for row in found if row["reason"] == "broken_dependency"]
    assert sorted(lacking) == [["m", "n"], ["o"]], "another module is another problem"
    found = [row for row in found if row["reason"] != "broken_dependency"]
    first, second = found[:2]
    assert second["servers"] == ["v"], "another reason is another problem"
    assert problems.blame(second) == "fault: network"
    assert (first["kind"], first["servers"], first["reason"]) == (
        "not_started",
        ["a", "b"],
        "misconfigured",
    )
    assert (first["affected"], first["calls"]) == (2, 2)
    assert first["message"] == "API_KEY is missing"
    assert problems.blame(first).startswith("fault: client, in how it starts the server")
    others = {row["kind"]: row for row in found}
    assert others["crash"]["servers"] == ["y"]
    assert problems.number(others["crash"]) == "1 of 1 start, between requests"
    assert problems.onset(others["crash"]) == f"first seen {ended:%F %H:%M} UTC"
    assert (others["noise"]["servers"], others["noise"]["affected"]) == (["z", "w"], 6)
    assert found.index(others["tool_failures"]) == 2


@pytest.mark.slow
def test_a_failed_start_counts_like_a_session_and_says_if_it_was_a_probe(tmp_path):
    no_start = {"start": "failed", "start_failure": "crashed"}
    recordings = [
        life("s", recording=str(n), **(no_start if n < 2 else {"start": "ready"})) for n in range(9)
    ]
    lost = {"outcome": "no_response", "method": "server/discover", "tool": None}
    rows = [call(0, **lost), *(call(n, "t") for n in range(2, 9) for _ in range(50))]
    rows += [call(n, "u", **REJECTED) for n in range(2, 9) for _ in range(9)]
    found = listed(tmp_path, rows, recordings)
    assert [row["kind"] for row in found] == ["start", "caller"]
    all_probes = problems.number(found[0] | {"probed": 2})
    assert all_probes == "2 of 9 (crashed), on newer clients' server/discover"
    assert problems.onset(found[0]) == f"first seen {BEGAN:%F %H:%M} UTC"
    assert problems.number(found[0]) == (
        "2 of 9 (crashed); 1 of them on newer clients' server/discover"
    )


@pytest.mark.slow
def test_failed_starts_are_a_problem_per_cause_unless_none_worked(tmp_path):
    words = ["no port 8080", "no port 8081", "bug"]
    failed = [{"start": "failed", "start_failure": "crashed", "last_words": each} for each in words]
    some = [life("s", recording=f"s{n}", **how) for n, how in enumerate([*failed, {}])]
    none = [life("d", recording=f"d{n}", **how) for n, how in enumerate(failed)]
    bugs = [life("e", recording=f"e{n}", **how) for n, how in enumerate([failed[2], {}])]
    found = listed(tmp_path, [call(0)], some + none + bugs)
    assert [(row["servers"], problems.statement(row).partition(";")[0]) for row in found] == [
        (["d"], "never started, 3 of 3 starts failed (crashed)"),
        (["s"], "failed starts, 2 of 4 (crashed)"),
        (["e", "s"], "failed starts, 2 of 6 (crashed)"),
    ]


@pytest.mark.slow
def test_a_request_that_is_not_a_call_to_a_tool_and_ends_the_server_is_a_problem(tmp_path):
    crash = {"outcome": "no_response", "reason": "server_crash", "verdict": "tool_failure"}
    read = crash | {"method": "resources/read", "tool": None}
    recordings = [life("s", recording=str(n), start="ready") for n in range(4)]
    recordings.append(life("s", recording="4", start="failed", start_failure="crashed"))
    rows = [call(0, **read), call(1, **read), call(1, "t", **crash, fault="tool"), call(2)]
    rows += [call(3, **read | {"reason": "no_response"}), call(4, **read)]
    found = listed(tmp_path, rows, recordings)
    [row] = [each for each in found if each["kind"] == "crash"]
    assert problems.number(row) == "1 of 5 starts, during resources/read"
    assert row["call_id"] == f"{0:016x}"


@pytest.mark.slow
def test_a_server_that_crashed_once_stands_above_a_few_rejected_calls(tmp_path):
    recordings = [
        life("s", recording=n, crash="idle" if n == "0" else None) for n in map(str, range(12))
    ]
    rows = traffic("t", 9, kind=REJECTED)
    found = listed(tmp_path, rows, recordings)
    assert [row["kind"] for row in found] == ["crash", "caller"]


@pytest.mark.slow
def test_a_crash_during_a_call_costs_the_calls_of_a_session_and_says_why(tmp_path):
    recordings = [life("s", recording=str(n), last_words="out of memory") for n in range(12)]
    lost = failure(None, reason="server_crash", outcome="no_response", error_text=None)
    rows = [call(n, **(REJECTED if i < 3 else OK)) for n in range(12) for i in range(9)]
    rows += [call(n, **lost) for n in range(2)]
    found = listed(tmp_path, rows, recordings)
    assert [row["kind"] for row in found] == ["tool_failures", "caller"]
    assert problems.message(found[0]) == "(never answered) out of memory"
    assert problems.title(found[0]) == "crashes"


def lacking(program, failed, worked):
    lacks = failure(f"{program} is not installed", reason="misconfig_or_missing_dependency")
    calls = range(failed + worked)
    return [call(program, "t", **(lacks if n < failed else OK)) for n in calls]


SURE_CALLS = traffic("t", 20, kind=REJECTED, server="sure")
ABOVE = {
    "an uncertain claim weighs no less than an unclear cause": (
        SURE_CALLS
        + [row | {"server": "unsure", "certainty": 80.0} for row in SURE_CALLS[:20]]
        + [row | {"server": "unsure"} for row in SURE_CALLS[20:]],
        ["unsure", "sure"],
    ),
    "the main problem of a server of which no call worked": (
        traffic("t", 30, 30, server="alive")
        + traffic("u", 0, 1, server="alive")
        + traffic("t", 28, 28, server="dead"),
        ["dead", "alive"],
    ),
    "rejected calls do not show whether a service can be reached": (
        traffic("t", 3, 3, kind=NO_HOST, server="dead")
        + traffic("t", 27, 27, REJECTED, server="dead")
        + traffic("t", 8, kind=NO_HOST | {"template": "no route"}, server="alive"),
        ["dead", "dead", "alive"],
    ),
    "a tool that lacks a program in every call": (
        lacking("pdf", 6, 0) + traffic("u", 0) + traffic("t", 11, 80, server="often"),
        ["s", "often"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "servers"), ABOVE.values(), ids=ABOVE)
def test_problems_of_servers_are_ranked_by_what_they_cost(tmp_path, rows, servers):
    assert [row["servers"] for row in listed(tmp_path, rows)] == [[each] for each in servers]


@pytest.mark.slow
def test_filters_choose_calls_by_tool_and_time(tmp_path):
    late = [row | {"requested_at": BEGAN.replace(day=5)} for row in traffic("new", 50)]
    rows = [row for n in range(4) for row in traffic(f"t{n}", 90 - n, kind=failure(f"bug {n}"))]
    store = build(tmp_path / "s", rows + late)
    for filters, tools in ({"since": "2026-03-04"}, ["new"]), ({"tool": "t2"}, ["t2"]):
        assert store.ask("priorities", **filters).pl()["tools"].to_list() == [tools]


LACKS = {"input_schema_state": "invalid", "input_schema_error": "lacks the member 'sql'"}
NULL = LACKS | {"input_schema_error": "is null, not string", "input_schema_path": "/sql"}
BREAK = [
    *traffic("t", 20, calls=20, kind=CRASH | LACKS),
    *traffic("t", 7, calls=7, kind=CRASH | NULL),
]
BREAKING = SERVERS.add([*BREAK, *traffic("t", 0)])
MOSTLY_BREAKING = SERVERS.add([*BREAK, *traffic("t", 3)])
SELDOM_BREAKING = SERVERS.add([*BREAK, *traffic("t", 28)])
REFUSED = [*traffic("t", 6, kind=REJECTED), *traffic("no\u200b", 1, 1, kind=REJECTED | LACKS)]
UNKNOWN = REJECTED | {"template": "Unknown tool", "reason": "unknown_tool"}
LISTS = SERVERS.add([*REFUSED, *traffic("x", 2, 2, kind=UNKNOWN)], [definition("t")])
SAYS_SO = SERVERS.add([*traffic("t", 2), *traffic("x", 9, 9, UNKNOWN), *traffic("x", 1, 1)])
FEW = SERVERS.add([*traffic("t", 9, kind=UNKNOWN), *traffic("x", 1, 1, kind=UNKNOWN)])
SAYS_SO_AT_TIMES = SERVERS.add([*traffic("x", 8, 8, UNKNOWN), *traffic("x", 1, 1)])
WORKED = SERVERS.add(traffic("x", 9, 10, UNKNOWN))


def test_a_problem_says_that_its_calls_break_the_input_schema(asked):
    said = [problems.inputs(asked(server)[0]) for server in (BREAKING, MOSTLY_BREAKING)]
    what = "break the input schema, most often: the object lacks the member 'sql'"
    assert said == [f"all calls {what}", f"27 of these calls {what}"]
    assert problems.inputs(asked(SELDOM_BREAKING)[0]) == ""


def test_names_that_are_no_tools_are_not_listed_as_tools(asked):
    [refused], [unknown, crash] = asked(LISTS), asked(SAYS_SO)
    assert (refused["tools"], refused["unlisted"]) == (["t"], ["x", "no\u200b"])
    assert problems.inputs(refused).startswith(
        "3 of these calls are to tools that the server does not have: x, no"
    )
    assert (crash["tools"], crash["unlisted_calls"]) == (["t"], 1), "10 calls, 9 say so"
    assert problems.inputs(crash) == (
        "1 of these calls is to a tool that the server does not have: x"
    )
    assert (unknown["tools"], unknown["tool"], unknown["unlisted"]) == ([], None, ["x"])
    assert problems.subject(unknown) == f"{SAYS_SO}"
    assert problems.inputs(unknown) == "all calls are to a tool that the server does not have: x"
    [few] = asked(FEW)
    said = "1 of these calls is to a tool that the server does not have: x"
    assert (few["unlisted"], problems.inputs(few)) == (["x"], said)
    for server in (SAYS_SO_AT_TIMES, WORKED):
        assert {row["unlisted_calls"] for row in asked(server)} == {0}


MOSTLY_OFFLINE = SERVERS.add(
    [*traffic("t", 5, 5, kind=NO_HOST), *[row | {"tool": "t"} for row in lacking("svn", 4, 0)]]
)


DENIED = failure("<path> is not writable", reason="misconfig_or_missing_dependency")
FOLLOWS = failure(
    "<path> does not exist",
    reason="misconfig_or_missing_dependency",
    rule="verdict.misconfig.denied-before",
)
CONSEQUENCES = SERVERS.add([*traffic("new", 1, 1, DENIED), *traffic("read", 9, 9, FOLLOWS)])


def test_the_example_is_the_cause_and_not_its_consequence(asked):
    [row] = asked(CONSEQUENCES)
    assert (row["affected"], row["template"]) == (10, DENIED["template"])


UNFOUND = failure("npx: command not found", reason="misconfig_or_missing_dependency")
NO_RIGHTS = UNFOUND | {"fault": "client", "template": "<path> is not writable"}
LIMIT = failure("Rate limit exceeded", "caller", reason="server_policy")
ABSENT = failure("Workbook <path> does not exist", "caller", reason="not_found")
LOCAL = failure(
    "dial tcp <ip>: connection refused",
    "upstream",
    reason="dependency_down",
    error_text="dial tcp 127.0.0.1:6443: connection refused",
)
ELSEWHERE = LOCAL | {"error_text": "dial tcp 10.0.0.7:6443: connection refused"}
CALLER = "fault: caller (95% sure)"
PERHAPS_CALLER = "fault: probably caller (79% sure)"
ADDRESS = "check the address in the server's settings"
UPSTREAM = "fault: upstream (95% sure)"
SET_UP = "fault: tool (95% sure), in how it is set up"
BLAMED = {
    "two texts decide about many calls, below 85 %": (
        of_texts(2, 84.9),
        ["fault: probably tool (84% sure); check the example"],
    ),
    "two texts decide about many calls": (of_texts(2, 85.0), ["fault: tool (85% sure)"]),
    "two texts decide about few calls": (of_texts(2, 70.0, 2), ["fault: tool (70% sure)"]),
    "three texts decide": (of_texts(3, 70.0), ["fault: tool (70% sure)"]),
    "a limit of the server's own": (
        traffic("t", 40, kind=LIMIT) + traffic("t", 9, kind=REJECTED),
        [
            f"{PERHAPS_CALLER}, or the server's operator, who can change this limit or rule",
            CALLER,
        ],
    ),
    "a server that is misconfigured, and started as another user": (
        traffic("a", 9, 9, NO_RIGHTS) + traffic("b", 9, 9, UNFOUND),
        ["fault: client (95% sure), in how it starts the server: as another user", SET_UP],
    ),
    "a local service that no call has reached may have another address": (
        traffic("t", 9, 9, LOCAL),
        [f"fault: probably upstream (79% sure); no call ever reached it, so {ADDRESS}"],
    ),
    "a local service that a call has reached": (traffic("t", 9, 10, LOCAL), [UPSTREAM]),
    "a service elsewhere that no call has reached": (traffic("t", 9, 9, ELSEWHERE), [UPSTREAM]),
    "none of three tools has ever found what callers name": (
        [row for tool in "abc" for row in traffic(tool, 9, 9, ABSENT)],
        [f"{PERHAPS_CALLER}; check the example"],
    ),
    "one of three tools has found it": (
        [row for tool in "abc" for row in traffic(tool, 9, 9 + (tool == "a"), ABSENT)],
        [CALLER],
    ),
    "neither of two tools has found it": (
        traffic("a", 9, 9, ABSENT) + traffic("b", 9, 9, ABSENT),
        [CALLER],
    ),
    "a program is missing, but the tool works in the same session": (
        lacking("pandoc", 9, 1),
        ["fault: unknown, perhaps tool (69% sure); check the example"],
    ),
    "a program is missing, and the tool works in another session": (
        lacking("ffmpeg", 10, 1) + [call("b", "t") for _ in range(50)],
        [SET_UP],
    ),
}
"""Calls to a server, and what is said about the fault of each of its problems."""


@pytest.mark.parametrize(
    ("server", "expected"),
    [(SERVERS.add(calls), expected) for calls, expected in BLAMED.values()],
    ids=BLAMED,
)
def test_a_problem_says_whose_fault_it_is_and_how_sure_that_is(asked, server, expected):
    assert [problems.blame(row) for row in asked(server)] == expected
