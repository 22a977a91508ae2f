"""A review in the browser: keys and buttons answer, and requests from elsewhere are refused."""

# ruff: noqa: S310  (every address is that of our own server)

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import pytest

import mcptally as mt
from mcptally.review.answers import Answer, Scope, read
from tests.output.explore.conftest import serving
from tests.output.html.conftest import chromium
from tests.review.archives import OK, recording, scored

pytestmark = pytest.mark.slow

WAIT = 60_000


class Desk(NamedTuple):
    """A server, and the file to which it writes answers."""

    address: str
    file: Path

    def answers(self) -> list[tuple[str, str, Scope, str]]:
        """Return reviewer, answer, scope and reason of each answer that counts."""
        found: list[Answer] = sorted(read(self.file).current().values(), key=lambda row: row.at)
        return [(row.who, row.answer, row.scope, row.why) for row in found]

    def post(self, path: str, origin: str | None = "", **fields: str) -> int:
        """Return the status of a form sent from a page of this origin; None: without an origin."""
        parts = urlsplit(self.address)
        own = f"{parts.scheme}://{parts.netloc}"
        headers = {} if origin is None else {"Origin": origin or own}
        request = urllib.request.Request(
            self.address + path, urlencode(fields).encode(), headers, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    def first_call(self) -> str:
        with urllib.request.urlopen(f"{self.address}review/next", timeout=60) as response:
            return re.search(r"call=([0-9a-f]+)", response.url)[1]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """The store of the archive of `tests/review`, with a third group of errors."""
    other = recording("b", [OK] * 60 + [("No paper", True)] * 20, server="other")
    return scored(tmp_path_factory.mktemp("desk"), other).path


@pytest.fixture
def desk(store, tmp_path) -> Iterator[Desk]:
    # A server of its own: it knows which calls a reviewer skipped.
    file = tmp_path / "answers.jsonl"
    with serving(store, "--reviews", str(file), "--as", "ann") as address:
        yield Desk(address, file)


@pytest.fixture
def refusing(addresses, unwritten) -> Desk:
    """A server that accepts no answer, shared by the tests of refusals."""
    return Desk(addresses["busy"], unwritten)


@pytest.fixture
def page(desk: Desk, browser: Any) -> Iterator[Any]:
    if chromium() is None:
        pytest.skip("no Chromium: bash .ci/servers-browser.sh FOLDER")
    context = browser.new_context()
    context.set_default_timeout(WAIT)
    opened = context.new_page()
    opened.goto(f"{desk.address}review", timeout=WAIT)
    yield opened
    context.close()


def press(page: Any, *keys: str) -> None:
    """Press keys; the last one leads to another page."""
    for key in keys[:-1]:
        page.keyboard.press(key)
    with page.expect_navigation(wait_until="load"):
        page.keyboard.press(keys[-1])


def test_one_key_answers_and_the_next_call_follows(desk: Desk, page):
    with page.expect_navigation(wait_until="load"):
        page.click("text=Review the largest groups")
    first = page.url
    press(page, "A", "c")
    assert page.url != first
    assert desk.answers() == [("ann", "caller", Scope.GROUP, "")]
    second = page.url
    page.keyboard.press("w")
    page.keyboard.type("at night: c a t")
    press(page, "Enter", "t")
    assert desk.answers()[1:] == [("ann", "tool", Scope.CALL, "at night: c a t")]
    press(page, "z")
    assert page.url == second
    assert len(desk.answers()) == 1
    press(page, "s")
    assert page.url not in (first, second)
    page.goto(first, timeout=WAIT)
    assert "You said: caller" in page.inner_text("legend")
    with page.expect_navigation(wait_until="load"):
        page.click("button:has-text('network')")
    assert [row[1] for row in desk.answers()] == ["network"]


def test_a_sample_is_drawn_answered_and_gives_rates(desk: Desk, page):
    with page.expect_navigation(wait_until="load"):
        page.click("button:has-text('20 answers')")
    assert "0 of 20 calls answered" in page.inner_text(".summary")
    for _ in range(20):
        assert "failure_rate" not in page.inner_text("main")
        press(page, "o")
    page.wait_for_selector("#sample >> text=failure_rate: 0.0 %")
    page.click("text=Overview")
    page.wait_for_selector("#reviewed >> text=reviewed: 0.0%")
    assert len(read(desk.file).samples) == 1


def test_forms_of_other_pages_write_nothing(refusing: Desk):
    call = refusing.first_call()
    for origin in (None, "null", "http://evil.example"):
        assert refusing.post("review/answer", origin, call=call, answer="tool") == 403
    assert not refusing.file.exists()


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("review/answer", {"call": "nosuch", "answer": "tool"}, 400),
        ("review/answer", {"answer": "undo"}, 400),
        ("review/answer", {"answer": "tool", "why": "x" * 20_000}, 413),
        ("review/sample", {"n": "19"}, 400),
        ("review/sample", {"n": "-1"}, 400),
        ("review", {"n": "20"}, 405),
    ],
)
def test_a_form_that_cannot_be_used_writes_nothing(refusing: Desk, path, fields, status):
    assert refusing.post(path, **fields) == status
    assert not refusing.file.exists()


def test_an_unknown_answer_is_refused(refusing: Desk):
    call = refusing.first_call()
    assert refusing.post("review/answer", call=call, answer="callers") == 400
    assert not refusing.file.exists()


def test_a_second_reviewer_does_not_see_what_the_first_one_answered(blind_store):
    rules = mt.open_store(blind_store).sql("SELECT fault, rule FROM calls").fetchall()
    assert rules.count(("account", "review.group")) == 4
    with (
        serving(blind_store, "--as", "bob") as address,
        urllib.request.urlopen(f"{address}review/next?second=1", timeout=60) as response,
    ):
        url, page = response.url, response.read().decode()
    assert "second=1" in url
    assert "Quota" in page
    seen = re.sub(r"(?s)<form.*?</form>", "", page)  # its buttons name every answer
    assert not [told for told in ("account", "printers", "zoe", "review.group") if told in seen]
