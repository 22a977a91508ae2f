"""The page in a real Chromium: it works, is accessible, and runs no recorded content."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.output.html import stores
from tests.output.html.conftest import WAIT, Activity, chromium, violations_of

pytestmark = pytest.mark.slow

pytest.importorskip("playwright", reason="playwright is not installed ('.[test]' has it)")
if chromium() is None:
    pytest.skip("no Chromium: bash .ci/servers-browser.sh FOLDER", allow_module_level=True)

PAGES = ("sample", "hostile", "calm", "worse", "large")


@pytest.fixture
def open_page(opened, pages) -> Callable[..., Any]:
    """Opens a page by name; returns it with its activity."""
    return lambda name, **options: opened(pages[name].as_uri(), **options)


def first_cells(page: Any, table: str, column: int) -> list[str]:
    return page.eval_on_selector_all(
        f"{table} tbody tr", f"rows => rows.map(row => row.cells[{column}].dataset.v)"
    )


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing_logs_no_errors_and_is_no_wider_than_the_window(
    open_page, pages, name
):
    page, activity = open_page(name)
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    page.wait_for_function("document.querySelectorAll('td > details[open] .cmd').length === 0")
    assert activity.requests == [pages[name].as_uri()]
    assert activity.messages == []


def test_recorded_markup_neither_runs_nor_becomes_an_element(open_page, pages):
    page, activity = open_page("hostile")
    for word in ("a", "<script>", "' onmouseover='"):
        page.fill("#tools input[type=search]", word)
    page.fill("#tools input[type=search]", "")
    page.click("#t-tools thead button >> nth=0")
    page.click("#theme")
    for summary in page.query_selector_all("#t-tools tr:not(.over) summary")[:10]:
        summary.click()
    page.emulate_media(media="print")
    assert page.evaluate(f"window.{stores.MARKER}") is None
    assert activity.dialogs == []
    assert activity.requests == [pages["hostile"].as_uri()]
    assert [line for line in activity.messages if "error" in line] == []
    assert page.evaluate("document.scripts.length") == 1
    assert page.evaluate("document.styleSheets.length") == 1
    assert page.evaluate("document.title").startswith("mcptally: ")
    foreign = "img,iframe,object,embed,base,link,audio,video,math,foreignObject,style ~ style"
    assert page.query_selector_all(foreign) == []
    assert page.is_visible("h1")


def test_the_policy_blocks_scripts_that_were_not_escaped(pages, browser):
    text = pages["calm"].read_text(encoding="utf-8")
    injected = pages["calm"].with_name("injected.html")
    marker = stores.MARKER
    attack = f"<script>window.{marker}=1</script><img src=x onerror='window.{marker}=1'></main>"
    injected.write_text(text.replace("</main>", attack), encoding="utf-8")
    context = browser.new_context()
    page = context.new_page()
    activity = Activity(page)
    page.goto(injected.as_uri(), wait_until="load", timeout=WAIT)
    assert page.query_selector("img")
    assert page.evaluate(f"window.{marker}") is None
    assert any("Content Security Policy" in line for line in activity.messages)
    context.close()


def test_the_script_cannot_turn_strings_into_markup(open_page):
    page, _ = open_page("calm")
    attempt = "() => { try { document.body.innerHTML = '<b>x</b>' } catch (e) { return e.name } }"
    assert page.evaluate(attempt) == "TypeError"


def test_columns_sort_in_both_directions_with_unknown_values_last(open_page):
    page, _ = open_page("sample")
    button = page.locator("#t-tools thead button", has_text="calls").first
    button.click()
    head = button.locator("xpath=..")
    assert head.get_attribute("aria-sort") == "descending"
    numbers = [float(v) for v in first_cells(page, "#t-tools", 2)]
    assert numbers == sorted(numbers, reverse=True)
    button.focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    numbers = [float(v) for v in first_cells(page, "#t-tools", 2)]
    assert numbers == sorted(numbers)
    page.locator("#t-tools thead button", has_text="success_rate").click()
    rates = first_cells(page, "#t-tools", 3)
    known = [v for v in rates if v]
    assert rates == known + [""] * (len(rates) - len(known))
    page.locator("#t-tools thead button", has_text="tool").first.click()
    names = first_cells(page, "#t-tools", 0)
    assert names == sorted(names, key=lambda name: (name.replace("_", " ").lower(), name))


def test_search_and_filters_show_only_matching_rows(open_page):
    page, _ = open_page("large")
    shown_rows = "#t-tools tbody tr:visible"
    assert page.locator(shown_rows).count() == 25
    page.fill("#tools input[type=search]", "number_0113")
    assert page.locator(shown_rows).count() == 1
    assert page.inner_text("#tools output") == "1 of 120"
    page.fill("#tools input[type=search]", "")
    page.check("#tools input[data-flag=failed]")
    assert page.inner_text("#tools output") == "80 of 120"
    page.uncheck("#tools input[data-flag=failed]")
    page.locator("#tools button.all").click()
    assert page.locator(shown_rows).count() == 120
    page.select_option("#errors select", "tool_failure")
    verdicts = page.eval_on_selector_all(
        "#t-errors tbody tr:not([hidden])", "rows => rows.map(row => row.dataset.verdict)"
    )
    assert set(verdicts) == {"tool_failure"}


def test_the_call_and_commands_of_a_row_open_below_it_and_close_when_the_table_is_sorted(open_page):
    page, _ = open_page("large")
    rows = page.locator("#t-tools tbody tr")
    rows.nth(3).locator("summary").click()
    below = page.locator("#t-tools tr.below")
    below.locator(".copy").first.wait_for()
    name = rows.nth(3).locator("th").get_attribute("data-v")
    assert rows.nth(4).get_attribute("class") == "below"
    assert f"tool = '{name}'" in below.inner_text()
    assert f"Request tools/call {name}" in below.inner_text()
    assert "What decided" in below.inner_text()
    page.locator("#t-tools thead button").first.click()
    assert below.count() == 0
    assert rows.count() == 120
    folded = page.locator("#t-tools tbody tr", has_text=name).locator("details .cmd")
    assert name in "".join(folded.all_text_contents())
    assert page.locator("#t-tools .whole").count() == 0


def test_order_and_filters_are_in_the_address_and_come_back_with_it(open_page):
    page, _ = open_page("large")
    page.locator("#t-tools thead button", has_text="ok").click()
    page.fill("#tools input[type=search]", "number_01")
    page.check("#tools input[data-flag=failed]")
    page.select_option("#errors select", "tool_failure")
    address = page.url
    names = first_cells(page, "#t-tools", 0)
    assert names != sorted(names)
    again, activity = open_page("calm")
    again.goto(address)
    assert activity.messages == []
    assert first_cells(again, "#t-tools", 0) == names
    assert again.input_value("#tools input[type=search]") == "number_01"
    assert again.is_checked("#tools input[data-flag=failed]")
    counts = [one.text_content("#tools output") for one in (page, again)]
    assert counts == ["13 of 120", "13 of 120"]
    assert again.input_value("#errors select") == "tool_failure"
    head = again.locator("#t-tools thead [aria-sort]")
    assert head.get_attribute("aria-sort") == "descending"
    again.locator("nav a", has_text="Errors").click()
    again.wait_for_function("() => location.hash.startsWith('#errors?')")
    assert again.input_value("#tools input[type=search]") == "number_01"


CLICK = """async (number) => {
    const link = document.querySelectorAll("a[href^='#']")[number];
    scrollTo(0, 0);
    for (let one = link.parentElement; one; one = one.parentElement)
        if (one.tagName === 'DETAILS') one.open = true;
    link.click();
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    const target = document.getElementById(decodeURIComponent(link.hash.slice(1).split('?')[0]));
    if (!target) return 'no target';
    const place = target.getBoundingClientRect();
    const page = document.scrollingElement;
    const atTheEnd = page.scrollTop >= page.scrollHeight - innerHeight - 3;
    const landed = place.top >= -20 && (place.top <= 100 || (atTheEnd && place.top < innerHeight));
    return place.height > 0 && landed ? null : `${place.top} of ${place.height}`;
}"""


@pytest.mark.parametrize("name", ["large", "worse"])
def test_every_link_of_a_page_leads_to_its_target(open_page, name):
    page, _ = open_page(name)
    addresses = page.eval_on_selector_all(
        "a[href^='#']", "links => links.map(one => one.getAttribute('href'))"
    )
    first = {address: number for number, address in reversed(list(enumerate(addresses)))}
    kinds: dict[str, list[str]] = {}
    for address in first:
        kinds.setdefault(re.sub(r"-[0-9a-f]{10,}$", "", address), []).append(address)
    chosen = [each for kind in kinds.values() for each in (kind[0], kind[-1])]
    assert set(kinds) >= {"#tools", "#tool", "#error", "#call", "#first"}
    missed = {address: page.evaluate(CLICK, first[address]) for address in chosen}
    assert {address: why for address, why in missed.items() if why} == {}


def test_an_address_of_a_row_shows_the_row_whatever_the_table_shows(open_page, pages):
    page, _ = open_page("large")
    last = page.locator("#t-tools tbody tr").last
    anchor = last.get_attribute("id")
    assert not last.is_visible()
    page.goto(f"{pages['large'].as_uri()}#{anchor}?tools.search=nothing")
    row = page.locator(f"#{anchor}")
    row.wait_for()
    page.wait_for_function(
        "id => document.getElementById(id).getBoundingClientRect().top < 900", arg=anchor
    )
    assert "target" in row.get_attribute("class")
    assert row.locator("a.here").get_attribute("href") == f"#{anchor}"


def test_an_address_of_a_row_in_a_section_that_is_not_drawn_leads_to_the_row(open_page):
    page, _ = open_page("large", viewport={"width": 1280, "height": 300})
    page.evaluate(
        """document.querySelectorAll('main > section').forEach((one, number) => {
            one.style.containIntrinsicSize = '1px'; if (!number) one.style.minHeight = '50000px';
        })"""
    )
    anchor = page.locator("#t-tools tbody tr").last.get_attribute("id")
    page.evaluate("anchor => { location.hash = anchor }", anchor)
    top = "document.getElementById(id).getBoundingClientRect().top"
    page.wait_for_function(f"id => {top} >= 0 && {top} < innerHeight", arg=anchor)


@pytest.mark.parametrize("javascript", [True, False])
def test_the_address_of_a_call_opens_it(open_page, pages, javascript):
    page, _ = open_page("large", java_script_enabled=javascript)
    call = page.locator("#calls .whole").last
    anchor = call.get_attribute("id")
    assert not call.is_visible()
    page.goto(f"{pages['large'].as_uri()}#{anchor}")
    page.locator(f"#{anchor} .why").wait_for()
    assert call.is_visible()


def test_the_message_of_an_error_group_is_in_the_window_of_a_phone(open_page):
    for name in ("sample", "large"):
        page, _ = open_page(name, viewport={"width": 390, "height": 800})
        message = page.locator("#t-errors tbody tr th bdi").first
        message.scroll_into_view_if_needed()
        box = message.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        show = page.locator("#t-errors tbody tr td.do summary").first.bounding_box()
        assert show["x"] + show["width"] <= 390


def test_a_call_can_be_opened_by_keyboard(open_page):
    page, _ = open_page("worse")
    page.locator(".priority details.call summary").first.focus()
    page.keyboard.press("Enter")
    page.locator(".priority .whole .why").first.wait_for()
    page.locator("#t-tools summary").first.focus()
    page.keyboard.press("Space")
    page.locator("#t-tools tr.below .whole").wait_for()


def test_the_theme_follows_the_system_until_it_is_switched(open_page):
    paper = "getComputedStyle(document.body).backgroundColor"
    light, _ = open_page("calm", color_scheme="light")
    dark, _ = open_page("calm", color_scheme="dark")
    colours = [light.evaluate(paper), dark.evaluate(paper)]
    assert colours[0] != colours[1]
    for page, other, word in ((light, colours[1], "Light"), (dark, colours[0], "Dark")):
        page.click("#theme")
        assert page.evaluate(paper) == other
        assert page.inner_text("#theme") == word


def test_the_copy_button_copies_the_whole_command(open_page):
    page, _ = open_page("worse", permissions=["clipboard-read", "clipboard-write"])
    page.locator(".priorities details.calls summary").first.click()
    button = page.locator(".priorities .copy").first
    command = page.locator(".priorities code.cmd").first.text_content()
    button.click()
    page.wait_for_function(
        "async line => await navigator.clipboard.readText() === line", arg=command
    )
    assert " show " in command


def test_without_javascript_all_rows_are_visible(open_page):
    page, _ = open_page("large", java_script_enabled=False)
    assert page.locator("#t-tools tbody tr:visible").count() == 120
    assert page.locator("form.filters:visible").count() == 0
    assert page.locator("#theme:visible").count() == 0


@pytest.mark.parametrize("name", ["sample", "worse"])
def test_all_details_are_open_in_print(open_page, name, tmp_path):
    page, _ = open_page(name, color_scheme="dark")
    printed = page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert printed.startswith(b"%PDF")
    assert page.locator("main details[open]").count() == 0
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    closed = page.locator("main details:not([open])")
    assert closed.count() == page.locator("details.call:not([open]), .whole details").count()
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(28, 29, 31)"
    assert page.locator(".priorities .cmd:visible").count() > 0
    assert page.locator("nav:visible, #theme:visible").count() == 0


@pytest.mark.parametrize(
    ("name", "scheme", "width"), [("sample", "light", 1280), ("worse", "dark", 390)]
)
def test_axe_finds_no_accessibility_violations(open_page, axe, name, scheme, width):
    # The page's policy would block the script of axe.
    page, _ = open_page(
        name, color_scheme=scheme, bypass_csp=True, viewport={"width": width, "height": 900}
    )
    page.evaluate(
        "document.querySelectorAll('.priority details, #calls details:nth-child(-n + 9)')"
        ".forEach(one => { one.open = true })"
    )
    page.locator("#t-errors summary, #t-tools summary").first.click()
    assert violations_of(page, axe) == []


def test_everything_can_be_reached_by_keyboard(open_page):
    page, _ = open_page("worse")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.closest('section, nav, header')?.tagName"
                " + ' ' + document.activeElement.tagName"
            )
        )
    assert {"HEADER BUTTON", "NAV A", "SECTION BUTTON", "SECTION SUMMARY"} <= reached
    assert {"SECTION INPUT", "SECTION DIV"} <= reached
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
