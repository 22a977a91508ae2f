"""Whether a listing of tools was received to its end."""

from pathlib import Path
from typing import Any

import pytest

import mcptally as mt
from tests.transcripts import c2s, opened, s2c, write


def listing(place: int, names: str, **result: Any) -> list[dict[str, Any]]:
    """A request for a page of the listing, and the page."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names.split()]
    request = {"jsonrpc": "2.0", "id": place, "method": "tools/list"}
    reply = {"jsonrpc": "2.0", "id": place, "result": {"tools": tools, **result}}
    return [c2s(2 * place - 1, request), s2c(2 * place, reply)]


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


@pytest.mark.parametrize("payloads", [True, False])
@pytest.mark.parametrize(("pages", "complete"), LISTINGS.values(), ids=LISTINGS)
def test_a_listing_is_complete_if_its_last_page_was_received(
    tmp_path: Path, pages: list[dict[str, Any]], complete: bool, payloads: bool
):
    mt.score(
        [write(tmp_path / "a.jsonl", [opened(), *pages])], out=tmp_path / "s", payloads=payloads
    )
    rows = mt.open_store(tmp_path / "s").sql("SELECT tool, complete FROM tools ORDER BY tool")
    assert rows.fetchall() == [("a", complete), ("b", complete)]


def test_one_session_with_the_last_page_makes_a_listing_complete(tmp_path: Path):
    for name, pages in (("one", listing(1, "a", **CURSOR)), ("two", listing(1, "a"))):
        events = [opened(name)] + [event | {"recording": name} for event in pages]
        write(tmp_path / f"{name}.jsonl", events)
        mt.score([tmp_path / f"{name}.jsonl"], out=tmp_path / name)
    mt.score([tmp_path / "one.jsonl", tmp_path / "two.jsonl"], out=tmp_path / "both")
    ask = "SELECT complete FROM tools"
    found = [mt.open_store(tmp_path / name).sql(ask).fetchall() for name in ("one", "two", "both")]
    assert found == [[(False,)], [(True,)], [(True,)]]
    together = mt.open_store(tmp_path / "one", tmp_path / "two")
    assert together.sql(ask).fetchall() == [(True,)]
