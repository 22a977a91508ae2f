"""`mcptally demo`: the findings equal the servers' actual faults."""

from collections import Counter

import pytest

import mcptally as mt
from mcptally.demo import servers
from mcptally.demo.client import CALLS, SESSIONS
from tests.commands import run

TRUTH = {
    "search_books": {("ok", None): 24, ("tool_error", "tool"): 24},
    "get_book": {("ok", None): 12, ("tool_error", "caller"): 12},
    "convert_price": {("ok", None): 12, ("hidden_error", "upstream"): 12},
    "order_book": {("ok", None): 6, ("tool_error", "account"): 6},
    "print_catalogue": {("ok", None): 12, ("timeout", None): 12},
    "recommend": {("ok", None): 24},
    "list_shelves": {("ok", None): 12},
}
"""Tool → how many calls have which outcome and fault."""


def test_the_client_calls_each_tool_of_the_demo():
    assert {tool for tool, _ in CALLS} == set(servers.TOOLS) == set(TRUTH)


@pytest.mark.slow
def test_the_demo_finds_what_is_wrong_with_its_servers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = run("demo", "--out", tmp_path / "traces")
    assert done.returncode == 0
    heading, truth = done.stdout.split("\nwhat is really wrong:\n")
    assert f"in {2 * SESSIONS} sessions" in heading
    assert heading.index("newsletter: never started, 2 of 2 starts failed") < heading.index("2. ")
    prose = " ".join(heading.split())
    for met, fail in (("`limit` is 1,000 or more", 24), ("the server's version is 1.1", 6)):
        alike = f"{fail} of {fail} calls fail with the example's message; otherwise 0 of {fail}"
        assert f"{met}: {alike}" in prose
    assert [line.split(":")[0].strip() for line in truth.splitlines()] == [
        *servers.TOOLS,
        servers.NEWSLETTER,
    ]

    mt.score([tmp_path / "traces"], out=tmp_path / "store")
    store = mt.open_store(tmp_path / "store")
    calls = store.sql("SELECT tool, outcome, fault FROM calls WHERE tool IS NOT NULL").fetchall()
    found = Counter((tool, (outcome, fault)) for tool, outcome, fault in calls)
    assert found == {(tool, kind): n for tool, kinds in TRUTH.items() for kind, n in kinds.items()}
    wrong = store.sql("SELECT rule, tool FROM findings WHERE severity <> 'info'").fetchall()
    assert set(wrong) == {("schema.output_invalid", "recommend")}
