"""`mcptally explore` as a process: responses to a browser, and refused requests."""

# ruff: noqa: S310  (every address is that of our own server)

import contextlib
import csv
import html
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock
from urllib.parse import quote, urlencode, urljoin, urlsplit

import pytest

import mcptally as mt
from mcptally.output.explore.app import HEADERS
from tests.output.explore.conftest import serving
from tests.output.html.stores import ATTACKS, answered, asked, defined, failed, session
from tests.transcripts import write

pytestmark = pytest.mark.slow

TOKEN = "ghp_" + "a1B2c3D4e5" * 4


class Served(NamedTuple):
    """A running server: its address, and the store that it serves."""

    address: str
    store: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("explore")
    calls = [
        (asked("read", path="first"), answered("contents of first")),
        (asked("read", path="second"), failed(f"KeyError: 'x' {TOKEN}")),
        *((asked(name, path=name), failed(name)) for name in ATTACKS),
    ]
    archive = folder / "archive"
    archive.mkdir()
    tools = [defined(name) for name in ("read", *ATTACKS)]
    write(archive / "traces.jsonl", session("one", "files", tools, calls))
    for server, tool, said in (
        (f"masked {TOKEN}", f"read {TOKEN}", "no"),
        ("x", "findx", "getaddrinfo ENOTFOUND h.test"),
        ("y", "findy", "getaddrinfo ENOTFOUND h.test"),
    ):
        calls = [(asked(tool), failed(said))]
        write(archive / f"{tool}.jsonl", session(tool, server, [defined(tool)], calls))
    mt.score(archive, out=folder / "store")
    # A zone of its own: times on pages and in addresses are in UTC whatever the machine's zone is.
    with (
        mock.patch.dict(os.environ, {"TZ": "America/New_York"}),
        serving(folder / "store") as address,
    ):
        yield Served(address, folder / "store")


def get(address: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Return status and body of a request, after redirects."""
    request = urllib.request.Request(address, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def text_of(page: str) -> str:
    """The page without its markup."""
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


def calls_of(served: Served) -> list[tuple[str, str]]:
    relation = mt.open_store(served.store).sql(
        "SELECT call_id, arguments FROM calls WHERE tool = 'read' ORDER BY requested_at, seq"
    )
    return relation.fetchall()


def test_all_links_of_the_pages_lead_to_pages(served: Served):
    """Two pages of each kind."""
    seen, todo, kinds = set(), [served.address], Counter()
    while todo:
        address = todo.pop(0)
        kind = urlsplit(address).path.split("/")[2]
        kinds[kind] += 1
        if kinds[kind] > 2:
            continue
        if kind == "download":
            urllib.request.urlopen(address, timeout=60).close()
            continue
        status, page = get(address)
        assert (status, "</html>" in page) == (200, True), address
        assert 'class="problem"' not in page, address
        links = re.findall(r'<a [^>]*href="(/[^"#]*)', page)
        found = {urljoin(address, html.unescape(link)) for link in links} - seen
        seen |= found
        todo += sorted(found)
    assert set(kinds) >= {
        *("", "server", "tool", "group", "call", "session", "table", "download", "compare", "sql"),
        *("review", "questions"),
    }


def test_a_page_is_sent_again_only_after_a_run_replaced_the_store(tmp_path: Path):
    for number, name in enumerate(("one", "two"), 1):
        calls = [(asked("read"), failed("no"))] * number
        write(tmp_path / f"{name}.jsonl", session(name, "files", [defined("read")], calls))
    mt.score([tmp_path / "one.jsonl"], out=tmp_path / "store")
    with serving(tmp_path / "store") as address:
        wanted = f"{address}tool?server=files&tool=read"
        with urllib.request.urlopen(wanted, timeout=60) as response:
            tag, first = response.headers["ETag"], response.read().decode()
        assert get(wanted, {"If-None-Match": tag}) == (304, "")
        mt.score([tmp_path / "one.jsonl", tmp_path / "two.jsonl"], out=tmp_path / "store")
        status, second = get(wanted, {"If-None-Match": tag})
    assert "0 of 1" in text_of(first)
    assert status == 200
    assert "0 of 3" in text_of(second)


def test_the_page_of_a_call_has_its_request_its_reply_and_its_verdict(served: Served):
    _, (failed, _) = calls_of(served)
    status, page = get(f"{served.address}call/{failed}")
    assert status == 200
    for part in ("path", "second", "KeyError: 'x'", "tool error: tool failure", "fault: tool"):
        assert part in text_of(page)
    problem = str(mt.open_store(served.store).show(failed)).partition("Problem: ")[2]
    for place in ("call/", "group?call="):
        assert problem.partition("\n")[0] in text_of(get(f"{served.address}{place}{failed}")[1])
    assert re.search(r"tool failure >?\d\d%, ", text_of(page))  # never 100%
    assert TOKEN not in page


def test_failed_calls_are_one_click_from_store_server_and_tool_and_downloaded(served: Served):
    query = (
        "SELECT call_id, server = 'files', tool = 'read' FROM calls WHERE outcome = 'tool_error'"
    )
    failed = mt.open_store(served.store).sql(query).fetchall()
    pages = {
        "": {call for call, _, _ in failed},
        "server?server=files": {call for call, of_server, _ in failed if of_server},
        "tool?server=files&tool=read": {call for call, _, of_tool in failed if of_tool},
    }
    for page, expected in pages.items():
        _, text = get(served.address + page)
        [link] = re.findall(r'href="([^"]*)">Failed calls', text)
        _, table = get(urljoin(served.address, html.unescape(link)))
        [download] = re.findall(r'href="([^"]*/download/csv/[^"]*)"', table)
        _, lines = get(urljoin(served.address, html.unescape(download)))
        assert {row["call_id"] for row in csv.DictReader(lines.splitlines())} == expected


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("table/drift", "No tool changed its definition."),
        ("table/drift?server=files", "No rows with these filters."),
        ("server?server=files", "No tool changed its definition."),
        ("compare?at=2100-01-01T00:00", "No error is new"),
    ],
)
def test_what_is_empty_says_what_that_means(served: Served, address: str, words: str):
    assert words in text_of(get(served.address + address)[1])


def test_a_call_is_found_by_the_beginning_of_its_id(served: Served):
    (first, _), _ = calls_of(served)
    status, page = get(f"{served.address}search?q={first[:10]}")
    assert status == 200
    assert first in page


def test_a_session_shows_its_calls_in_order_with_links_to_them(served: Served):
    (first, _), (second, _) = calls_of(served)
    _, page = get(f"{served.address}call/{first}")
    link = html.unescape(re.search(r'href="(/[^"]*session[?][^"#]*)', page)[1])
    root = served.address.split("/", 3)
    status, page = get(f"{root[0]}//{root[2]}{link}")
    assert status == 200, text_of(page)
    assert page.index(f'id="{first}"') < page.index(f'id="{second}"')
    assert f"call/{second}" in page
    assert "KeyError: 'x'" in text_of(page)
    assert TOKEN not in page


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("call/0123456789abcdef", "no call has the id '0123456789abcdef'"),
        ("session?session=none", "no session has the id"),
        ("table/tool_scors", "Did you mean"),
        ("table/tool_scores?server=other", "no server is called 'other'"),
        ("table/tool_scores?since=yesterdayish", "yesterdayish"),
        ("table/tool_scores?min_calls=-1", "min calls: '-1' is not a number of calls"),
        (
            "compare?since=2000-01-02T00:00&until=2000-01-01T00:00",
            "2000-01-01 00:00 is not after 2000-01-02 00:00",
        ),
    ],
)
def test_what_cannot_be_answered_says_why(served: Served, address: str, words: str):
    status, page = get(served.address + address)
    assert status == 404
    assert words.lower() in text_of(page).lower()


def test_questions_and_sql_are_answered_with_links_to_calls(served: Served):
    (first, _), _ = calls_of(served)
    query = "SELECT call_id, arguments FROM calls WHERE tool = 'read' ORDER BY seq LIMIT 1"
    for address in ("table/error_groups?server=files", f"sql?query={quote(query)}"):
        status, page = get(served.address + address)
        assert status == 200
        assert "<tbody>" in page
    assert re.search(rf'href="/[^"]*/call/{first}"', page)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT nothing FROM calls", "nothing"),
        ("SELECT * FROM read_text('/etc/hostname')", "read_text"),
        ("DROP TABLE calls", "SELECT"),
    ],
)
def test_sql_that_may_not_run_says_why(served: Served, query: str, words: str):
    status, page = get(f"{served.address}sql?query={quote(query)}")
    assert status == 200
    assert "<tbody>" not in page
    assert words in text_of(page)


def test_recorded_text_never_becomes_markup(served: Served):
    sessions = mt.open_store(served.store).sql("SELECT DISTINCT session FROM calls").fetchall()
    pages = [
        get(f"{served.address}session?session={quote(name, safe='')}")[1] for (name,) in sessions
    ]
    others = ("", "table/tool_scores", "table/error_groups", "table/calls", "search?q=script")
    pages += [get(f"{served.address}{name}")[1] for name in others]
    ids = mt.open_store(served.store).sql("SELECT call_id FROM calls ORDER BY seq").fetchall()
    # The pages above have all texts. All templates escape alike: a part of the texts shows it for
    # the other kinds of pages.
    pages += [get(f"{served.address}call/{name}")[1] for (name,) in ids[::5]]
    pages += [get(f"{served.address}group?call={name}")[1] for (name,) in ids[::12]]
    for name in map(quote, ATTACKS[::10]):
        pages.append(get(f"{served.address}tool?server=files&tool={name}")[1])
    for page in (text.replace('<script src="/', '<our src="/', 1) for text in pages):
        assert not re.search(r"<(script|iframe|img|base|meta http)|href=.javascript", page)
        assert not re.search(r"<[^>]*\son\w+=", page)
        assert not re.search("[\u202e\u2066\x1b]", page)


def test_other_hosts_other_sites_and_other_tokens_are_refused(served: Served):
    parts = urlsplit(served.address)
    plain = f"http://{parts.netloc}/"
    assert get(served.address, {"Host": "attacker.example"})[0] == 421
    assert get(served.address, {"Host": f"attacker.example:{parts.port}"})[0] == 421
    assert get(served.address, {"Origin": "http://attacker.example"})[0] == 403
    assert get(served.address, {"Origin": "null"})[0] == 403
    assert get(plain)[0] == 404
    assert get(f"{plain}{'x' * 32}/")[0] == 404
    assert get(served.address, {"Origin": plain.rstrip("/")})[0] == 200


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "", 200),
        ("HEAD", "", 200),
        ("GET", "explore.css", 200),
        ("GET", "explore.js", 200),
        ("GET", "sql?query=SELECT+1", 200),
        ("GET", "table/tool_scores", 200),
        ("GET", "call/none", 404),
        ("GET", "no/such/page", 404),
        ("GET", "tool?server=files&tool=tools/list", 303),
        ("GET", "table?source=latency", 303),
        ("POST", "sql", 403),
        ("GET", "/", 404),
        ("OPTIONS", "*", 404),
    ],
)
def test_every_response_forbids_frames_unasked_caching_and_foreign_content(
    served: Served, method: str, target: str, status: int
):
    parts = urlsplit(served.address)
    path = target if target in {"/", "*"} else parts.path + target
    with contextlib.closing(http.client.HTTPConnection(parts.netloc, timeout=60)) as connection:
        connection.request(method, path)
        response = connection.getresponse()
    assert response.status == status
    assert response.headers.get_all("Cache-Control") == ["private, no-cache"]
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "same-origin"
    (policy,) = response.headers.get_all("Content-Security-Policy")
    assert policy == HEADERS["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy


def test_links_of_masked_names_lead_to_their_pages(served: Served):
    query = "SELECT call_id FROM calls WHERE tool LIKE 'read ghp%'"
    ((call_id,),) = mt.open_store(served.store).sql(query).fetchall()
    _, page = get(f"{served.address}call/{call_id}")
    links = re.findall(r'href="(/[^"#]*/(?:server|tool|group|table|session)[?/][^"#]*)', page)
    answers = [get(urljoin(served.address, html.unescape(link))) for link in links]
    assert any("redacted" in link for link in links)
    assert [status for status, _ in answers] == [200] * len(links)
    assert all(TOKEN not in said for _, said in answers)


def test_a_problem_of_several_servers_has_no_link_to_a_tool_of_the_wrong_one(served: Served):
    problems = mt.open_store(served.store).ask("priorities").pl()["servers"].to_list()
    assert ["x", "y"] in problems
    _, page = get(served.address)
    assert "findy" in page
    assert "server=x&tool=findy" not in html.unescape(page)


def test_the_token_is_not_on_the_browsers_command_line(served: Served, tmp_path: Path):
    log, copy, browser = (tmp_path / name for name in ("log", "copy", "browser"))
    lines = (
        "#!/bin/sh",
        'file="${1#file://}"',
        f'cp "$file" {copy}',
        f'{{ echo "$@"; stat -c %a "$(dirname "$file")"; }} > {log}',
    )
    browser.write_text("\n".join(lines))
    browser.chmod(0o700)
    command = [sys.executable, "-I", "-m", "mcptally", "explore", str(served.store), "--open"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = os.environ | {"BROWSER": f"{browser} %s", "TMPDIR": str(temporary)}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        address = process.stdout.readline().decode().strip()
        assert get(f"{address}explore.css")[0] == 200
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert process.returncode == 128 + signal.SIGINT
    assert not list(temporary.iterdir())
    words, mode = log.read_text().splitlines()
    assert words.startswith("file://")
    assert address.split("/")[3] not in words
    assert address in copy.read_text()
    assert mode == "700"
    assert not Path(urlsplit(words).path).exists()


def test_a_signal_stops_an_answer_that_takes_long_and_leaves_no_files(served: Served, tmp_path):
    options = ["explore", str(served.store), "--seconds", "3600"]
    endless = "SELECT sum(hash(a.range + b.range)) FROM range(10000000) a, range(10000000) b"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-I", "-m", "mcptally", *options]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        address = process.stdout.readline().decode().strip()
        with urllib.request.urlopen(f"{address}sql?{urlencode({'query': endless})}") as response:
            began = response.read(1)  # the head of the page comes before the answer
            made = [path.name for path in tmp_path.iterdir()]
            process.send_signal(signal.SIGTERM)
            rest = response.read().decode()
        _, said = process.communicate()
    assert began == b"<"
    assert "the query was cancelled" in rest
    assert said == b"serving until Ctrl-C\n"
    assert process.returncode == 128 + signal.SIGTERM
    assert any(name.startswith("mcptally-explore-") for name in made)
    assert not list(tmp_path.iterdir())


def test_errors_since_a_moment_are_found_in_every_zone(served: Served):
    _, page = get(f"{served.address}compare?at=2000-01-01T00:00")
    _, later = get(f"{served.address}compare?at=2100-01-01T00:00")
    _, ended = get(f"{served.address}compare?since=2000-01-01T00:00&until=2000-01-02T00:00")
    assert "KeyError" in page
    assert "KeyError" not in later
    assert "KeyError" not in ended
    assert later.rstrip().endswith("</html>")


def test_only_forms_of_a_review_are_answered(served: Served):
    origin = {"Origin": served.address.rsplit("/", 2)[0]}
    request = urllib.request.Request(f"{served.address}sql", b"query=SELECT+1", origin)
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=60)
    with raised.value as error:
        assert error.code == 405


HEAD = """
import sys
from concurrent.futures import Future
from pathlib import Path
from mcptally.output.explore.listener import listening

store = Path(sys.argv[1])
with listening(store):
    print(sorted({"duckdb", "jinja2", "polars", "starlette", "uvicorn"} & {*sys.modules}))
from mcptally.output.explore import app, page
from mcptally.output.explore.addresses import Links

never = Future()
first = app.first_page(app.State(store), never)
print(next(page.stream(page.environment(Links("/x/")), first, never.cancel)))
page.asset("explore.css")
print(sorted({"duckdb", "numpy", "polars", "pyarrow"} & {*sys.modules}))
"""


def test_address_and_head_of_the_first_page_need_no_large_packages(served: Served):
    command = [sys.executable, "-I", "-c", HEAD, str(served.store)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    ((calls,),) = mt.open_store(served.store).sql("SELECT count(*) FROM calls").fetchall()
    assert (lines[0], lines[-1]) == ("[]", "[]")
    assert f"{calls} requests" in done.stdout


VANISHED = """
import shutil
import socket
import sys
from pathlib import Path
from mcptally.errors import StoreError
from mcptally.output.explore import app

state = app.State(Path(sys.argv[1]))
shutil.rmtree(sys.argv[1])
with socket.create_server(("127.0.0.1", 0)) as listener:
    with app.serving(state, listener, token="x") as serve:
        try:
            serve()
        except StoreError as error:
            print(error)
"""


def test_a_store_that_vanishes_before_it_is_loaded_ends_the_server(served: Served, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(served.store, store)
    command = [sys.executable, "-I", "-c", VANISHED, str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert "no such store" in done.stdout
