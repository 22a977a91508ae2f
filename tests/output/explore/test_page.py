"""A page is sent section by section; a section that fails does not affect the others."""

import signal

import pytest

from mcptally.errors import QueryError
from mcptally.output.explore import pages
from mcptally.output.explore.addresses import Links
from mcptally.output.explore.listener import _signals_wait
from mcptally.output.explore.page import Page, Section, environment, stream


@pytest.mark.parametrize(
    ("error", "said"), [(QueryError("too slow"), "too slow"), (KeyError("x"), "(KeyError)")]
)
def test_a_section_that_fails_says_so_and_the_others_are_shown(error, said):
    def fail():
        raise error

    failed = []
    sections = [Section("names", "Names", fail), Section("errors", "Errors", list)]
    page = Page("search", "Search", head={"text": ""}, sections=sections)
    templates = environment(Links("/x/"))
    pages.complete(templates)
    text = "".join(stream(templates, page, lambda: failed.append(1)))
    assert said in text
    assert text.index('id="names"') < text.index('id="errors"') < text.index("</html>")
    assert failed == [1]


def test_a_signal_waits_until_the_packages_are_imported():
    got = []
    before = signal.signal(signal.SIGTERM, lambda number, _: got.append(number))
    try:
        with _signals_wait():
            signal.raise_signal(signal.SIGTERM)
            assert got == []
        assert got == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
