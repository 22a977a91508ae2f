"""Whether a complete listing of tools was received."""

from typing import Any

import pytest

from tests.scored_cases import Cases, Scored
from tests.transcripts import exchange, opened, request, result


def listing(place: int, names: str, **members: Any) -> list[dict[str, Any]]:
    """Return a request for a page of the listing, and the page."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names.split()]
    reply = result(place, tools=tools, **members)
    return exchange(request(place, "tools/list"), reply, first=2 * place - 1)


CURSOR = {"nextCursor": "page 2"}
MENTIONED = {"_meta": {"nextCursor": "not the cursor of this page"}}
LISTINGS = {
    "one page": (listing(1, "a b"), True),
    "an empty cursor member": (listing(1, "a b", nextCursor=None), True),
    "a cursor elsewhere": (listing(1, "a b", **MENTIONED), True),
    "two pages": (listing(1, "a", **CURSOR) + listing(2, "b"), True),
    "the first page only": (listing(1, "a b", **CURSOR), False),
    "the first page after a whole listing": (listing(1, "a b") + listing(2, "a", **CURSOR), False),
}


CASES = Cases()
NUMBERS = {name: CASES.add(opened(), *pages) for name, (pages, _) in LISTINGS.items()}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(True, id="payloads"),
        pytest.param(False, id="no payloads", marks=pytest.mark.slow),
    ],
)
def scored(request, tmp_path_factory) -> Scored:
    return CASES.score(tmp_path_factory.mktemp("listings"), payloads=request.param)


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_is_complete_if_its_last_page_was_received(scored: Scored, name: str):
    _, complete = LISTINGS[name]
    rows = scored.rows("tools", NUMBERS[name]).select("tool", "complete").sort("tool")
    assert rows.rows() == [("a", complete), ("b", complete)]


def session(name: str, pages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [opened(name), *(event | {"recording": name} for event in pages)]


FIRST, WHOLE = session("one", listing(1, "a", **CURSOR)), session("two", listing(1, "a"))
BOTH = CASES.add(*FIRST, *WHOLE)


def test_one_session_with_the_last_page_makes_a_listing_complete(scored: Scored):
    assert scored.rows("tools", BOTH)["complete"].to_list() == [True]
