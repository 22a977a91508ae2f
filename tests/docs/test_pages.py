"""Generated reference pages are what the code says."""

import pytest

from tests.docs import generated


@pytest.mark.parametrize("name", generated.PAGES)
def test_a_reference_page_says_what_the_code_says(name: str):
    kept = (generated.DOCS / name).read_text(encoding="utf-8")
    assert kept == generated.PAGES[name](), "python -m tests.docs.generated writes it anew"
