"""The page as a file: complete, small, reproducible, and without recorded markup."""

import base64
import datetime
import hashlib
import html
import itertools
import re
import resource
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import mcptally as mt
from mcptally.analytics.views import question_titles
from mcptally.cli import cli
from mcptally.errors import UsageError
from mcptally.output.html import report, write_page
from mcptally.output.html.answers import Asked
from mcptally.output.html.commands import Commands
from mcptally.output.html.text import interval, is_printable, percent, shown
from tests.analytics.built_stores import BEGAN, build, call
from tests.output.html import parsed_page, stores
from tests.scored_cases import Cases

pytestmark = pytest.mark.slow

PAGES = ("sample", "hostile", "calm", "worse", "large")
TAGS = frozenset(
    re.findall(
        r"\w+",
        "html head meta title style body a header div p span button h1 h2 h3 figure svg rect path "
        "circle text figcaption ul ol li b bdi nav main section blockquote code details summary "
        "form label input select option output table caption thead tbody tr th td dl dt dd footer "
        "script wbr pre",
    )
)
DASH = "\N{EN DASH}"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_recorded_elements(pages, name):
    page = parsed_page.parse(pages[name])
    assert {tag for tag, _ in page.elements} <= TAGS
    assert len(page.named("script")) == len(page.named("style")) == 1


def test_a_problem_with_a_contrast_has_a_bar_for_each_share(pages):
    text = pages["sample"].read_text(encoding="utf-8")
    problems = re.findall(r'<li [^>]*class="priority.*?</li>', text, re.DOTALL)
    found = {bool(re.search("; otherwise [0-9]", each)) for each in problems}
    assert found == {True, False}
    for problem in problems:
        shares = re.findall(r"(\d+) of (\d+) calls fail .*?; otherwise (\d+) of (\d+)", problem)
        bars = re.findall(r"<dd>(\d+) of (\d+) fail this way</dd>", problem)
        assert bars == [pair for share in shares for pair in (share[:2], share[2:])]


@pytest.mark.parametrize("name", PAGES)
def test_no_attribute_runs_styles_or_loads_anything(pages, name):
    for tag, attributes in parsed_page.parse(pages[name]).elements:
        for key, value in attributes.items():
            assert not key.startswith("on"), (tag, key)
            assert key not in {"style", "src", "srcset", "srcdoc", "action", "formaction"}
            if key == "href":
                assert re.fullmatch(r"#[a-z]+(-[0-9a-f]+)?", value), value
    text = pages[name].read_text(encoding="utf-8")
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize("name", PAGES)
def test_the_policy_allows_this_style_and_this_script_and_nothing_else(pages, name):
    text = pages[name].read_text(encoding="utf-8")
    policy = parsed_page.parse(pages[name]).named("meta")[1]
    assert policy["http-equiv"] == "Content-Security-Policy"
    rules = dict(part.split(" ", 1) for part in policy["content"].split("; "))
    assert rules["default-src"] == "'none'"
    assert not any(word in policy["content"] for word in ("unsafe", "http", "*", "data:"))
    for kind in ("style", "script"):
        body = re.search(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_landmarks_headings_and_labels_for_screen_readers(pages, name):
    page = parsed_page.parse(pages[name])
    ids = [value for _, attributes in page.elements if (value := attributes.get("id"))]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for key in ("aria-labelledby", "data-for"):
            assert attributes.get(key, ids[0]) in ids
        if (target := attributes.get("href")) is not None:
            assert target[1:] in ids
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for tag in ("header", "nav", "main", "footer"):
        assert len(page.named(tag)) == 1
    assert len(page.named("caption")) == len(page.named("table"))
    for drawing in page.named("svg"):
        assert drawing.get("aria-hidden") == "true" or drawing["aria-label"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_control_or_bidirectional_characters(pages, name):
    page = parsed_page.parse(pages[name])
    for text in page.texts:
        assert is_printable(text.replace("\n", "").replace("\N{NO-BREAK SPACE}", "")), repr(text)
    for _, attributes in page.elements:
        for value in attributes.values():
            assert is_printable(value or ""), repr(value)


def test_recorded_markup_is_shown_as_text(pages):
    text = "".join(parsed_page.parse(pages["hostile"]).texts)
    for attack in stores.ATTACKS:
        assert shown(attack, 60).removesuffix("\N{HORIZONTAL ELLIPSIS}") in text


def test_a_page_of_300_tools_lists_all_and_stays_small_with_long_and_escaped_names(tmp_path):
    filled = ["'" * 110, "\u202e" * 110, "&" * 800]
    page = report(stores.many(tmp_path, 300, filled=filled))
    assert len(page.encode()) < 2_800_000
    assert page.count("<wbr>") > 500
    table = page[page.index('id="t-tools"') :]
    assert table[: table.index("</table>")].count("<tr") == 1 + 300


def test_the_title_says_how_many_calls_worked_and_why_the_others_did_not(pages):
    assert "<h1>All of 60 calls got what they asked for</h1>" in pages["calm"].read_text()
    text = pages["worse"].read_text()
    assert "<h1>67% of 60 calls got what they asked for</h1>" in text
    assert '<p class="reasons">20 (33%) tool failure</p>' in text


def test_totals_are_the_sums_of_the_scores_of_servers(sample_store):
    assert Asked(sample_store).totals() == Asked(sample_store, {"since": "1970-01-01"}).totals()


def test_changes_for_the_worse_come_first_and_show_an_example_call(pages, worse_store):
    text = pages["worse"].read_text(encoding="utf-8")
    first = text[text.index('<ol class="priorities">') :]
    assert first.index("got worse") < first.index("</li>")
    assert "lower confidence: 100.0%" in first[: first.index("</li>")]
    assert 'id="compared"' in text
    shows = [line for line in parsed_page.parse(pages["worse"]).commands if " show " in line]
    failed = mt.open_store(worse_store).sql("SELECT call_id FROM calls WHERE verdict IS NOT NULL")
    assert shows[0].split()[-1] in {call for (call,) in failed.fetchall()}


def test_a_page_without_failures_gives_the_lower_bound_of_the_confidence(pages):
    text = pages["calm"].read_text(encoding="utf-8")
    assert (
        "No problem was found. 1 tool has enough data; the confidence is at least"
        in parsed_page.parse(pages["calm"]).plain_text()
    )
    assert '<ol class="priorities">' not in text


NOT_COLUMNS = {"evidence", "interval", "timeline", "changes", "parts"}
"""Headings of calls, charts and row counts, which are not column names."""


def test_every_heading_of_a_table_is_the_name_of_a_column(pages, calm_store):
    store = mt.open_store(calm_store)
    columns = {column for name in question_titles() for column in store.ask(name).columns}
    columns |= set(store.compare(store).tools.columns)
    for name in PAGES:
        text = pages[name].read_text(encoding="utf-8")
        heads = re.findall(r'<th scope="col"[^>]*>([^<]*)', text)
        assert heads
        assert set(heads) - NOT_COLUMNS <= columns


def test_a_tool_that_never_worked_is_named_so_without_a_chart_of_one_minute(tmp_path):
    down = {"outcome": "tool_error", "verdict": "infrastructure"}
    store = build(tmp_path / "s", [call(n, "query", **down) for n in range(449)])
    page = report(store)
    assert "<h1>None of 449 calls got what they asked for</h1>" in page
    assert "449 (100%) infrastructure: no answer, network or upstream" in page
    assert "1 of 1 tool never worked" in page
    table = page[page.index('id="t-tools"') :]
    table = table[: table.index("</table>")]
    for text in ('class="never"', ">never worked<", ">no evidence<", ">0</td>", ">449</td>"):
        assert text in table
    assert "100%" not in re.sub(r"<svg.*?</svg>", "", table)
    assert 'class="over"' not in page, "calls of one minute have no chart over time"


def test_a_store_without_calls_has_a_page(tmp_path):
    store = stores.scored(tmp_path, stores.session("r", "idle", [stores.defined("echo")], []))
    page = report(store)
    assert "<h1>No tool was called</h1>" in page
    assert "Limits of the data" in page


def test_every_command_on_a_page_finds_calls(pages, hostile_store):
    store = mt.open_store(hostile_store)
    asked = {"show": 0, "query": 0}
    for line in [*dict.fromkeys(parsed_page.parse(pages["hostile"]).commands)][::2]:
        program, verb, path, what, *rest = shlex.split(line)
        assert (program, path) == ("mcptally", str(hostile_store))
        if verb == "show":
            found = store.sql("SELECT 1 FROM calls WHERE call_id = ?", params=[what])
        elif rest:
            found = store.ask(what)
        else:
            found = store.sql(what)
        assert found.limit(1).pl().height, line
        asked[verb] += 1
    assert min(asked.values()) > len(stores.ATTACKS) / 2


def test_commands_apply_the_filters_of_the_page(tmp_path):
    events = []
    for place, (name, client, at) in enumerate(
        (("one", "ann", "2026-01-01T10Z"), ("two", "bob it's", "2026-02-01T10Z"))
    ):
        start = int(datetime.datetime.fromisoformat(at).timestamp()) * 10**9
        events += a_session(name, f"server {place}", client, start)
    chosen = {"client": "bob it's", "since": "2026-01-15"}
    page = tmp_path / "page.html"
    store = mt.open_store(stores.scored(tmp_path, events))
    report(store, page, **chosen)
    lines = [line for line in parsed_page.parse(page).commands if line.startswith("mcptally query")]
    assert lines
    rows = store.sql("SELECT call_id FROM calls WHERE tool = 'echo' AND server = 'server 1'")
    expected = set(rows.pl()["call_id"])
    for line in dict.fromkeys(lines):
        *_, query = shlex.split(line)
        assert set(store.sql(query).pl()["call_id"]) == expected
    ask = Commands("a b", chosen).ask("latency")
    assert shlex.split(ask)[1:] == [
        *("query", "a b", "latency"),
        *("--client=bob it's", "--since=2026-01-15", "--limit", "0"),
    ]


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh"])
def test_shells_parse_the_commands_as_intended(pages, shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    lines = list(dict.fromkeys(parsed_page.parse(pages["hostile"]).commands))
    script = "mcptally() { printf '%s\\037' \"$@\"; printf '\\036'; }\n" + "\n".join(lines)
    ran = subprocess.run(
        [shell], input=script.encode(), capture_output=True, check=True, cwd=tmp_path
    )
    read = [part.split("\x1f")[:-1] for part in ran.stdout.decode().split("\x1e")[:-1]]
    assert read == [shlex.split(line)[1:] for line in lines]
    assert not list(tmp_path.iterdir())


@given(st.text(), st.text(), st.from_regex(r"[0-9a-f]{16}", fullmatch=True))
def test_commands_are_one_line_without_control_characters(server, tool, call):
    line = Commands("store").calls(server, tool, "outcome <> 'ok'", call)
    assert is_printable(line)
    assert shlex.split(line)[:3] == ["mcptally", "query", "store"]
    assert len(shlex.split(line)) == 4


@given(st.text(alphabet=st.characters(), max_size=400))
def test_shown_texts_are_printable_and_cut(text):
    cut = shown(text, 100)
    assert is_printable(cut)
    assert len(cut) <= 100


@pytest.mark.parametrize(
    ("call", "given"),
    [("0123456789abcdef", True), ("-rf", False), ("a;b", False), ("a\nb", False), (None, False)],
)
def test_only_valid_call_ids_become_part_of_a_command(call, given):
    assert (Commands("store").show(call) is not None) == given


@pytest.mark.parametrize(
    ("path", "word"), [("a b", "'a b'"), ("-x", "./-x"), ("a\x1bb", "STORE"), ("s", "s")]
)
def test_the_path_of_the_store_is_quoted_as_one_word(path, word):
    assert Commands(path).store == word


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (None, DASH),
        (0, "0%"),
        (1.0, "100%"),
        (0.00001, "<0.01%"),
        (0.0004, "0.04%"),
        (0.0123, "1.2%"),
        (0.5, "50%"),
        (0.998, "99.8%"),
        (0.99999, ">99.99%"),
    ],
)
def test_shares_are_never_rounded_to_0_or_100_percent(share, said):
    assert percent(share) == said


def test_intervals_have_one_percent_sign():
    assert interval(0.7041, 0.99826) == f"70{DASH}99.8%"
    assert interval(0.0, 0.999999) == f"0{DASH}100%"


def test_the_command_writes_the_same_page_again_to_a_file_or_stdout(
    pages, calm_store, worse_store, tmp_path
):
    out = tmp_path / "page.html"
    done = CliRunner().invoke(cli, ["report", str(calm_store), str(worse_store), "-o", str(out)])
    assert done.exit_code == 0
    assert done.stdout == ""
    assert re.fullmatch(rf"{re.escape(str(out))}: \d+ kB\n", done.stderr)
    assert out.read_bytes() == pages["worse"].read_bytes()
    piped = CliRunner(charset="ascii").invoke(cli, ["report", str(calm_store), "-o", "-"])
    assert piped.stdout_bytes == pages["calm"].read_bytes()
    assert not piped.stdout_bytes.isascii()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_page_that_cannot_be_written_leaves_no_half_and_names_the_file(tmp_path):
    page = "page" * 1000
    with pytest.raises(UsageError, match="/dev/full: cannot be written: no space left"):
        write_page(page, Path("/dev/full"))
    before = tmp_path / "page.html"
    before.write_text("before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(UsageError, match=r"page\.html: cannot be written: file too large"):
            write_page(page, before)
    finally:
        signal.signal(signal.SIGXFSZ, old)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert before.read_text() == "before"
    assert not list(tmp_path.glob("*.part"))


def linked_calls(row: str) -> list[str]:
    """Return the ids of the complete calls to which a row's HTML links."""
    return re.findall(r'class="to" href="#call-([0-9a-f]+)"', row)


def whole_call(page: str, call_id: str) -> str:
    """Return the text of a complete call on a page."""
    start = page.index(f'id="call-{call_id}"')
    return html.unescape(re.sub(r"<[^>]*>", "", page[start : page.index("</div>", start)]))


@pytest.mark.parametrize("name", ["sample", "hostile", "worse"])
def test_each_priority_error_group_hidden_error_and_slow_tool_has_a_whole_call(pages, name):
    text = pages[name].read_text(encoding="utf-8")
    rows = {
        "error": re.findall(r'<tr id="error-.*?</tr>', text, re.DOTALL),
        "hidden": re.findall(r'<tr id="hidden-.*?</tr>', text, re.DOTALL),
        "slow": re.findall(r'<li id="slow-.*?</li>', text, re.DOTALL),
    }
    assert rows["error"]
    assert rows["slow"]
    assert bool(rows["hidden"]) == (name != "worse")
    for found in rows.values():
        for row in found:
            assert linked_calls(row)
            for call_id in linked_calls(row):
                assert text.count(f'id="call-{call_id}"') == 1
    for problem in re.findall(r'<li id="first-.*?</li>', text, re.DOTALL):
        no_call = ("breaking definition change", "failed starts", "crashes")
        assert any(words in problem for words in (*no_call, "#call-", "whole"))


def crashed(texts: dict[str, str], **arguments) -> list:
    """The events of a session in which each tool fails with its text."""
    calls = [(stores.asked(tool, **arguments), stores.failed(text)) for tool, text in texts.items()]
    return list(stores.session("r", "s", [stores.defined(tool) for tool in texts], calls))


def a_session(name: str, server: str, client: str, start: int, step: int = 1_000_000) -> list:
    calls = [
        (stores.asked("echo", n=n), stores.failed("TypeError: x is no function")) for n in "ab"
    ]
    events = list(stores.session(name, server, [stores.defined("echo")], calls, client=client))
    for place, event in enumerate(events):
        event["ts_ns"] = start + place * step
    return events


def with_stderr() -> list:
    events = crashed({"echo": stores.CRASH}, n=1)
    seq = next(e["seq"] for e in events if "tools/call" in str(e))
    events.insert(-2, stores.t.event("stderr", seq, "r", text="<b>KeyError</b>: password=hunter2x"))
    return events


CASES = Cases()
WHOLE = CASES.add(*crashed({"echo": stores.CRASH}, word="hello there"))
WITH_STDERR = CASES.add(*with_stderr())
REPEATED = CASES.add(
    *crashed({f"tool{n}": "TypeError: y is missing; " + "word " * 300 for n in range(5)}, n=1)
)
LONG = CASES.add(
    *crashed({"a": "TypeError: " + "few " * 500, "b": "TypeError: " + "many " * 50_000}, n=1)
)
NINE = CASES.add(
    *stores.session(
        *("r", "s", [stores.defined("echo")]),
        [(stores.asked("echo", n=n), stores.failed("TypeError: no")) for n in range(9)],
    )
)


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> mt.Store:
    return mt.open_store(CASES.score(tmp_path_factory.mktemp("cases"), jobs=1).path)


@pytest.fixture(scope="module")
def page_of_cases(cases) -> str:
    return report(cases)


def calls_of(case: int, store: mt.Store) -> list[tuple[str, int]]:
    """Return id and line of each call of a case."""
    asked = "SELECT call_id, line FROM calls WHERE server = ? AND tool IS NOT NULL ORDER BY line"
    return store.sql(asked, params=[f"{case}-s"]).fetchall()


def whole_calls(case: int, store: mt.Store, page: str) -> str:
    """Return the HTML of all complete calls of a case on a page."""
    found = []
    for call_id, _ in calls_of(case, store):
        if (start := page.find(f'id="call-{call_id}"')) >= 0:
            found.append(page[start : page.index("</div>", start)])
    return "\n".join(found)


def test_a_whole_call_has_request_reply_error_text_evidence_and_place(cases, page_of_cases):
    [(call_id, line)] = calls_of(WHOLE, cases)
    text = whole_call(page_of_cases, call_id)
    for part in (
        "Request tools/call echo (",
        '"word": "hello there"',
        '"isError": true',
        stores.CRASH,
        "Verdict: tool_failure: the tool itself failed",
        f"{WHOLE}.jsonl:{line}",
    ):
        assert part in text


def test_a_whole_call_has_the_frames_and_the_stderr_of_the_transcript(
    cases, page_of_cases, tmp_path
):
    with_transcript = whole_calls(WITH_STDERR, cases, page_of_cases)
    assert '"jsonrpc": "2.0"' in html.unescape(with_transcript)
    assert "&lt;b&gt;KeyError&lt;/b&gt;" in with_transcript
    assert "hunter2x" not in page_of_cases
    store = stores.scored(tmp_path, with_stderr())
    (tmp_path / "traffic.jsonl").unlink()
    without = report(store)
    assert '"jsonrpc": "2.0"' not in without
    assert "Of 1 call, only arguments and result are shown" in without
    assert "traffic.jsonl: No such file" in without
    assert stores.CRASH.splitlines()[-1] in html.unescape(without)


def test_a_payload_that_many_calls_have_is_on_the_page_once(cases, page_of_cases):
    assert len(re.findall(r'"text": "TypeError: y is missing', page_of_cases)) == 1
    whole = whole_calls(REPEATED, cases, page_of_cases)
    assert whole.count("The same result as that of call") == 4


def test_long_payloads_are_folded_and_cut(cases, page_of_cases):
    whole = whole_calls(LONG, cases, page_of_cases)
    assert whole.count('<details class="long"><summary>show the reply</summary>') == 2
    assert "(cut after 4,000 characters)" in whole
    assert len(page_of_cases) < 250_000


def test_filters_select_the_calls_of_a_page(cases):
    chosen = {"server": f"{NINE}-s", "tool": "echo", "client": "tester", "since": "2001-01-01"}
    page = report(cases, **chosen)
    [row] = re.findall(r'<tr id="error-.*?</tr>', page, re.DOTALL)
    assert len(set(linked_calls(row))) == 1
    assert "Recorded: 9 calls to" in page
    assert f"The page counts only calls selected by: server {NINE}-s" in page


def test_a_page_of_calls_without_times_says_so(tmp_path):
    page = report(stores.scored(tmp_path, a_session("one", "s", "ann", 0, step=0)))
    assert "at unknown times" in page
    assert "unknown time UTC" not in page


def test_calls_take_2_mb_at_most_and_the_page_says_how_many_are_left_out(tmp_path):
    tools = [stores.defined(f"tool_{n}") for n in range(400)]
    calls = [
        (stores.asked(tool["name"], n=f"{tool['name']} " * 400), stores.failed(f"{n} " * 3000))
        for n, tool in enumerate(tools)
    ]
    page = report(stores.scored(tmp_path, stores.session("r", "s", tools, calls)))
    assert 1_500_000 < len(page.encode()) < 3_500_000
    said = re.search(r"They take 2.0 of 2 MB. (\d+) further calls did not fit", page)
    shown_calls = int(re.search(r">(\d+) whole calls<", page)[1])
    assert page.count('class="whole"') == shown_calls
    assert shown_calls + int(said[1]) == 400


def test_each_row_of_a_table_has_an_anchor_and_a_link_to_it(pages):
    for name in PAGES:
        text = pages[name].read_text(encoding="utf-8")
        bodies = re.findall(r"<tbody>(.*?)</tbody>", text, re.DOTALL)
        rows = [row for body in bodies for row in re.findall(r"<tr.*?</tr>", body, re.DOTALL)]
        for row in rows:
            anchor = re.match(r'<tr id="([a-z]+-[0-9a-f]{10})"', row)[1]
            assert f'class="here" href="#{anchor}"' in row


def test_the_chart_over_time_marks_when_a_tool_began_to_fail(tmp_path):
    def at(minute: int, kind: dict) -> dict:
        moment = BEGAN + datetime.timedelta(minutes=minute)
        return call(f"s{minute // 4}", "pay", requested_at=moment, **kind)

    down = {"outcome": "tool_error", "verdict": "infrastructure", "template": "refused"}
    rows = [at(minute, {} if minute < 60 else down) for minute in range(120)]
    page = report(build(tmp_path / "s", rows))
    chart = re.search(r'<figure class="over".*?</figure>', page, re.DOTALL)[0]
    assert 'class="onset o-worse" d="M500.0 0V100"' in chart
    assert "2026-03-02 01:00 UTC" in chart
    assert "100% of 60 calls succeeded before, 0% of 60 since" in html.unescape(chart)
    assert {"k-ok", "k-infrastructure"} <= set(re.findall(r'<path class="([^"]+)"', chart))
    target = re.search(r'href="#(tool-[0-9a-f]+)"', chart)[1]
    assert f'<tr id="{target}"' in page
