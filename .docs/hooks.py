# ruff: noqa: INP001  (mkdocs loads this file by its path)
"""mkdocs hooks: the site's navigation, and pages made from files outside docs/.

The sections of docs/index.md become the navigation. Notebooks, the README of the sample traces
and the reference of the code become pages when the site is built.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import reference

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
BESIDE = {
    **{f"notebooks/{path.name}": f"notebooks/{path.stem}.md" for path in ROOT.glob("notebooks/*")},
    "sample_traces/README.md": "sample_traces.md",
    "README.md": "index.md",
}
"""A file or folder of the repository → its page on the site."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation to the sections of docs/index.md."""
    sections: list[dict[str, Any]] = [{"Home": "index.md"}]
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, body = part.split("\n", 1)
        pages = [
            {label[:1].upper() + label[1:]: target}
            for label, link in LINK.findall(body)
            if "://" not in link and (target := _on_site(DOCS, link))
        ]
        sections.append({title.strip(): pages})
    config.nav = sections
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from files outside docs/."""
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        for name, content in _notebook(path).items():
            files.append(File.generated(config, name, content=content))
    traces = (ROOT / "sample_traces" / "README.md").read_text(encoding="utf-8")
    # The programs that the README links to have no page on the site.
    traces = re.sub(r"\[([^\]]*)\]\((?:plans|record)\.py\)", r"\1", traces)
    files.append(File.generated(config, "sample_traces.md", content=traces))
    for name, page in reference.PAGES.items():
        files.append(File.generated(config, f"reference/{name}", content=page()))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Replace links that leave docs/ with links to the pages of their targets."""
    here = DOCS / Path(page.file.src_uri).parent

    def moved(match: re.Match[str]) -> str:
        label, link = match.groups()
        target = _on_site(here, link)
        if "://" in link or link.startswith("#") or target is None:
            return match[0]
        steps = "../" * page.file.src_uri.count("/")
        is_built = Path(target).name in reference.PAGES
        anchor = "" if is_built or "#" not in link else link[link.find("#") :]
        return f"[{label}]({steps}{target}{anchor})"

    return LINK.sub(moved, markdown) if "](" in markdown else markdown


def _on_site(here: Path, link: str) -> str | None:
    """Resolve `link` in a file of the folder `here` to a page of the site, or to None."""
    path, _, anchor = link.partition("#")
    target = (here / path).resolve()
    if target == DOCS / "reference" / "README.md" and f"{anchor}.md" in reference.PAGES:
        return f"reference/{anchor}.md"
    if not target.is_relative_to(ROOT):
        return None
    beside = BESIDE.get(target.relative_to(ROOT).as_posix())
    if beside or not target.is_relative_to(DOCS):
        return beside
    return target.relative_to(DOCS).as_posix()


def _notebook(path: Path) -> dict[str, str | bytes]:
    """Convert a saved notebook to a page and its pictures, by path."""
    parts: list[str] = []
    made: dict[str, str | bytes] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                name = f"{path.stem}-{len(made)}.png"
                made[f"notebooks/{name}"] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![{_alt(source)}]({name})")
            elif "text/html" in data:
                # The site's style applies only to tables without a class.
                table = re.sub(r"<table[^>]*>", "<table>", "".join(data["text/html"]))
                parts.append(table)
            else:
                parts.append(f"```text\n{''.join(data['text/plain'])}\n```")
    return {f"notebooks/{path.stem}.md": "\n\n".join(parts) + "\n"} | made


def _alt(source: str) -> str:
    title = re.search(r'title="([^"]+)"\)\s*$', source)
    return title[1] if title else "chart"
