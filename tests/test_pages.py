"""Generated reference pages are what the code says."""

import pytest

from tests import pages


@pytest.mark.parametrize("name", pages.PAGES)
def test_a_reference_page_says_what_the_code_says(name: str):
    kept = (pages.DOCS / name).read_text(encoding="utf-8")
    assert kept == pages.PAGES[name](), "python -m tests.pages writes it anew"
