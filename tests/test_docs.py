"""Links between documents lead somewhere, and every page can be found from the index."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "sample_traces" / "README.md", *DOCS.rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in LINK.findall(prose):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_page_is_in_the_index():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = {(DOCS / target).resolve() for target in LINK.findall(index) if "://" not in target}
    pages = {page for page in DOCS.rglob("*.md") if page.parent.name != "decisions"}
    assert {str(p.relative_to(DOCS)) for p in pages - listed} == {"index.md"}
