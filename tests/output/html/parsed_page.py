"""Parses a page into its elements, attributes, texts and commands."""

import functools
import html.parser
from pathlib import Path

VOID = frozenset({"br", "input", "meta", "wbr"})
"""Elements that have no end."""


class ParsedPage(html.parser.HTMLParser):
    """The elements of a page with their attributes, its texts, and its commands."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.commands: list[str] = []
        self.texts: list[str] = []
        self._inside: list[str] = []
        self._command = False
        self.feed(text)
        self.close()
        assert not self._inside

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        assert len(attributes) == len(attrs), f"a repeated attribute: {tag} {attrs}"
        self.elements.append((tag, attributes))
        if tag not in VOID:
            self._inside.append(tag)
        if tag == "code" and attributes.get("class") == "cmd":
            self._command = True
            self.commands.append("")

    def handle_endtag(self, tag: str) -> None:
        self._command = False
        assert self._inside.pop() == tag, "an element is closed in the wrong order"

    def handle_data(self, data: str) -> None:
        if self._inside and self._inside[-1] in {"script", "style"}:
            return
        self.texts.append(data)
        if self._command:
            self.commands[-1] += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of each element with this tag."""
        return [attributes for name, attributes in self.elements if name == tag]

    def plain_text(self) -> str:
        """The text of the page without markup."""
        return "".join(self.texts)


@functools.cache
def parse(path: Path) -> ParsedPage:
    """The elements of a page that is not written again."""
    return ParsedPage(path.read_text(encoding="utf-8"))
