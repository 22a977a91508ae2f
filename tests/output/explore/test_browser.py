"""The pages of `explore` in a real Chromium: links, keys, and hostile recordings."""

import itertools
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.output.html import stores
from tests.output.html.conftest import WAIT, chromium, violations_of

pytestmark = pytest.mark.slow

pytest.importorskip("playwright", reason="playwright is not installed ('.[test]' has it)")
if chromium() is None:
    pytest.skip("no Chromium: bash .ci/servers-browser.sh FOLDER", allow_module_level=True)


@pytest.fixture
def visit(opened, addresses) -> Callable[..., Any]:
    """Opens a page of a store; returns it with its activity."""
    return lambda store, path="", **options: opened(addresses[store] + path, **options)


def link(page: Any, within: str, name: str) -> Any:
    """Return the first link with this name in an element."""
    return page.locator(within).get_by_role("link", name=name, exact=True).first


def heading(page: Any) -> str:
    return page.inner_text("h1")


def test_a_reader_goes_from_the_store_to_a_call_and_back_by_links(visit):
    page, activity = visit("busy")
    link(page, "#servers", "files").click()
    assert heading(page) == "server files"
    link(page, "#tools", "list_dir").click()
    assert heading(page) == "tool list_dir"
    page.click("#errors th a")
    assert heading(page).startswith("error KeyError")
    page.click("#calls th a >> nth=0")
    assert heading(page) == "call tools/call list_dir"
    page.click("text=Its session in order")
    assert heading(page).startswith("session s")
    for expected in ("call tools/call list_dir", "error KeyError", "tool list_dir", "server files"):
        page.go_back(wait_until="load")
        assert heading(page).startswith(expected)
    page.go_forward(wait_until="load")
    assert heading(page) == "tool list_dir"
    page.click(".crumbs a >> nth=-1")
    assert heading(page) == "server files"
    assert activity.messages == []


def test_a_table_is_sorted_filtered_and_paged_by_clicks(visit):
    page, _ = visit("busy", "table/calls")
    link(page, "tbody", "tool_error").click()
    page.wait_for_url("**is.outcome=tool_error")
    assert "outcome = tool_error" in page.inner_text(".chosen")
    failed = set(page.locator("tbody tr td:nth-child(4)").all_inner_texts())
    assert failed == {"tool_error"}
    page.click("thead a:has-text('latency_ms')")
    page.wait_for_url("**sort=-latency_ms**")
    numbers = [float(text) for text in page.locator("tbody td:nth-child(7)").all_inner_texts()]
    assert numbers == sorted(numbers, reverse=True)
    page.click("a[rel=next]")
    page.wait_for_url("**page=2**")
    state = parse_qs(urlsplit(page.url).query)
    assert state == {"is.outcome": ["tool_error"], "sort": ["-latency_ms"], "page": ["2"]}
    later = [float(text) for text in page.locator("tbody td:nth-child(7)").all_inner_texts()]
    assert max(later) <= min(numbers)
    page.click(".chosen a")
    page.wait_for_url(lambda address: "is.outcome" not in address)
    assert page.locator(".chosen").count() == 0
    page.go_back(wait_until="load")
    assert "outcome = tool_error" in page.inner_text(".chosen")


@pytest.mark.parametrize("source", ["calls", "error_groups", "messages"])
def test_cells_stand_below_their_headings_and_words_are_whole(visit, source):
    page, _ = visit("busy", f"table/{source}")
    left = "cells => cells.map(cell => Math.round(cell.getBoundingClientRect().left))"
    heads = page.eval_on_selector_all("thead th", left)
    assert page.eval_on_selector_all("tbody tr:first-child td", left) == heads
    lines = "cells => new Set(cells.map(cell => cell.firstElementChild.getClientRects().length))"
    assert page.eval_on_selector_all("td.word", f"cells => [...({lines})(cells)]") == [1]


def test_columns_are_chosen_and_downloaded(visit):
    page, _ = visit("busy", "table/calls?is.tool=query")
    page.click("text=Table, filters and columns")
    page.evaluate(
        "for (const box of document.querySelectorAll('fieldset input')) box.checked = false"
    )
    page.check("fieldset input[value=call_id]")
    page.check("fieldset input[value=latency_ms]")
    page.click("text=Show these columns")
    page.wait_for_url("**columns=**")
    assert set(page.locator("thead th").all_inner_texts()) == {"latency_ms", "call_id"}
    with page.expect_download() as waiting:
        link(page, "main", "CSV").click()
    lines = waiting.value.path().read_text().splitlines()
    assert len(lines) == 1 + 10_020
    assert set(lines[0].replace('"', "").split(",")) == {"call_id", "latency_ms"}
    link(page, "main", "SQL").click()
    page.wait_for_url("**/sql?**")
    assert "WHERE" in page.input_value("#query")
    assert page.locator("tbody tr").count() == 500


def test_keys_search_move_open_and_go_up(visit):
    page, _ = visit("busy", "table/tool_scores?is.server=files")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.locator("tbody tr:nth-child(1).at").count() == 1
    page.keyboard.press("Enter")
    page.wait_for_url("**/server?**")
    page.goto(page.url.replace("/server?", "/tool?") + "&tool=read_file", wait_until="load")
    page.keyboard.press("u")
    page.wait_for_url("**/server?**")
    page.keyboard.press("/")
    page.keyboard.type("list_dir")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?**")
    link(page, "#names", "list_dir").wait_for()
    page.goto(page.url.split("/search")[0] + "/table/calls", wait_until="load")
    page.keyboard.press("]")
    page.wait_for_url("**page=2**")
    page.keyboard.press("[")
    page.wait_for_url(lambda address: "page=2" not in address)


def test_a_table_of_a_page_is_sorted_by_its_headings(visit):
    page, _ = visit("busy")
    page.click("#servers thead button >> nth=1")
    calls = page.eval_on_selector_all(
        "#servers tbody tr", "rows => rows.map(row => Number(row.cells[1].dataset.v))"
    )
    assert calls == sorted(calls, reverse=True)
    assert page.get_attribute("#servers th[aria-sort]", "aria-sort") == "descending"


def test_the_chosen_theme_is_kept_on_other_pages(visit):
    page, _ = visit("busy", color_scheme="light")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    link(page, "#servers", "files").click()
    page.wait_for_url("**/server?**")
    assert light != dark
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_a_payload_folds_and_can_be_copied(visit):
    page, _ = visit("busy", "table/calls?is.tool=read_file&is.outcome=tool_error")
    page.click("tbody td:last-child a >> nth=0")
    page.locator("#request .tree details[open] details[open]").first.wait_for()
    page.click("#request button:text-is('Fold all')")
    assert page.locator("#request .tree details[open]").count() == 0
    assert page.locator("#reply mark").first.inner_text() == "path must not be empty"
    page.click("text=Copy: command to repeat it")
    page.click(".options button.copy >> nth=0")
    page.wait_for_function(
        "[...document.querySelectorAll('.options button.copy')][0].textContent !== 'Copy'"
    )


def test_two_ranges_of_time_are_compared(visit):
    page, _ = visit("busy", "compare")
    start = page.get_attribute("[name=since]", "value")
    assert page.get_attribute("[name=base_until]", "value") == start
    # `list_dir` fails for one client since the third of October.
    day = "2026-10-{:02}T00:00".format
    page.fill("[name=base_until]", day(3))
    page.fill("[name=since]", day(5))
    with page.expect_navigation(wait_until="load"):
        page.click(".filters button")
    assert "list_dir" in page.inner_text("#changes tbody")
    assert "KeyError" in page.inner_text("#errors")
    page.fill("[name=base_since]", day(5))
    page.fill("[name=base_until]", "")
    with page.expect_navigation(wait_until="load"):
        page.click(".filters button")
    assert page.locator("#errors th").count() == 0


PAGES = (
    "",
    "server?server=files",
    "tool?server=files&tool=read_file",
    "tool?server=mail&tool=send",
    "table/calls",
    "table/error_groups",
    "compare",
    "search?q=path",
    "sql?query=SELECT+1",
    "review",
    "questions",
)


@pytest.fixture(scope="module")
def places(addresses, browser) -> list[str]:
    """The path of one page of each kind, in the store `busy`."""
    context = browser.new_context()
    answer = context.request.get(addresses["busy"] + "table/calls?is.outcome=tool_error")
    call = re.search(r"/call/([0-9a-f]+)", answer.text())[1]
    context.close()
    of_call = (f"call/{call}", f"group?call={call}", f"session?session=s48&at={call}")
    return [*PAGES, *of_call, f"review/call?call={call}"]


def test_pages_fit_the_window_log_no_errors_and_axe_finds_no_violations(
    visit, places, addresses, axe
):
    page, activity = visit("busy")
    violations = []
    # Pages share their parts: half of them are checked in either scheme.
    for place, look in zip(places, itertools.cycle((("light", 1280), ("dark", 390)))):
        page.emulate_media(color_scheme=look[0])
        page.goto(addresses["busy"] + place, wait_until="load", timeout=WAIT)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        for width in (1670 - look[1], look[1]):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, place
        violations += [f"{place}: {look}: {each}" for each in violations_of(page, axe)]
    assert violations == []
    assert activity.messages == []
    host = urlsplit(addresses["busy"]).netloc
    assert {urlsplit(address).netloc for address in activity.requests} == {host}


def test_recorded_markup_neither_runs_nor_becomes_an_element(visit, addresses):
    # test_explore.py looks at the markup of more pages.
    page, activity = visit("hostile")
    links = page.eval_on_selector_all("main a[href^='/']", "all => all.map(one => one.href)")
    kinds = ("/call/", "/tool?", "/server?")
    found = [next(link for link in links if kind in link) for kind in kinds]
    call = found[0].rpartition("/")[2].partition("#")[0]
    places = ["table/tools", "search?q=<script>", f"review/call?call={call}", f"group?call={call}"]
    foreign = "img,iframe,object,embed,base,audio,video,math,foreignObject,style"
    for address in [*found, *(addresses["hostile"] + place for place in places)]:
        answer = page.goto(address, wait_until="load", timeout=WAIT)
        assert answer.status == 200, address
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert page.evaluate(f"window.{stores.MARKER}") is None
        assert page.query_selector_all(foreign) == []
        assert page.evaluate("document.scripts.length") == 1
        assert page.evaluate("document.styleSheets.length") == 1
        strange = "[...document.links].filter(one => one.protocol !== 'http:').length"
        assert page.evaluate(strange) == 0
    assert activity.dialogs == []
    assert [line for line in activity.messages if "error" in line] == []
    host = urlsplit(addresses["hostile"]).netloc
    assert {urlsplit(address).netloc for address in activity.requests} == {host}


def test_the_policy_blocks_scripts_that_were_not_escaped(visit):
    page, activity = visit("busy")
    page.evaluate(
        "() => { const made = document.createElement('div'); try { made.innerHTML = '<b>x</b>' }"
        " catch (error) { window.refused = error.name } }"
    )
    assert page.evaluate("window.refused") == "TypeError"
    assert any("TrustedHTML" in line or "Trusted Type" in line for line in activity.messages)
