"""Generated reference pages are what the code says."""

from tests.docs import generated
from tests.rows import each_row


@each_row("name", generated.PAGES)
def test_a_reference_page_says_what_the_code_says(name: str):
    kept = (generated.DOCS / name).read_text(encoding="utf-8")
    assert kept == generated.PAGES[name](), "python -m tests.docs.generated writes it anew"
