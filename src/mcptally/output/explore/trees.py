"""Renders JSON as a collapsible tree, in which schema errors and given texts are highlighted."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from markupsafe import Markup, escape

from mcptally.output.html.text import shown_lines
from mcptally.plural import count

NODES: Final = 3000
"""Maximum number of values shown in a tree."""
LONGEST: Final = 20_000
"""Maximum number of characters shown of a string."""
_DEEPEST: Final = 60
_OPEN: Final = 12
"""Maximum number of members for an object or list to be expanded at first."""
_OPEN_DEPTH: Final = 4
_LINE: Final = 160
"""Maximum length in characters of a string that is shown on the same line as its name."""


class Tree:
    """Renders a JSON text as a tree.

    Args:
        errors: maps JSON Pointers to the texts of schema errors.
        decided: texts to highlight, because they decided the verdict.
    """

    def __init__(self, errors: Mapping[str, str], decided: Iterable[str]) -> None:
        self._errors: Final = errors
        self._decided: Final = sorted({text for text in decided if len(text) > 2}, key=len)[::-1]
        self._left = NODES

    def render(self, text: str) -> Markup:
        """Return the tree. Text that is not JSON, or is nested too deeply, is shown unchanged."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return Markup('<pre tabindex="0"><bdi>{}</bdi></pre>').format(self._marked(text))
        return Markup('<div class="tree">{}</div>').format(self._node(None, value, "", 0))

    def _node(self, name: str | None, value: Any, place: str, depth: int) -> Markup:
        """Render a value with its name and content."""
        self._left -= 1
        label = Markup() if name is None else Markup("<b><bdi>{}</bdi></b>: ").format(_line(name))
        error = self._errors.get(place)
        note = Markup('<span class="wrong">{}</span>').format(_line(error)) if error else Markup()
        if not isinstance(value, dict | list) or not value:
            return Markup('<div class="leaf{}">{}{} {}</div>').format(
                " bad" if error else "", label, self._leaf(value), note
            )
        if depth >= _DEEPEST:
            return Markup('<div class="leaf">{}…</div>').format(label)
        noun = "member" if isinstance(value, dict) else "item"
        inside = Markup().join(self._members(value, place, depth))
        is_open = depth < _OPEN_DEPTH and (len(value) <= _OPEN or depth == 0)
        return Markup(
            '<details class="node{}"{}><summary>{}<span class="of">{}</span> {}</summary>'
            "{}</details>"
        ).format(
            " bad" if error else "",
            Markup(" open") if is_open or self._has_error(place) else Markup(),
            label,
            count(len(value), noun),
            note,
            inside,
        )

    def _has_error(self, place: str) -> bool:
        return any(other.startswith(f"{place}/") for other in self._errors)

    def _members(self, value: Any, place: str, depth: int) -> Iterator[Markup]:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for number, (name, member) in enumerate(pairs):
            if self._left <= 0:
                rest = len(value) - number
                yield Markup('<div class="leaf of">… {}</div>').format(f"{rest:,} more")
                return
            below = f"{place}/{str(name).replace('~', '~0').replace('/', '~1')}"
            yield self._node(str(name), member, below, depth + 1)

    def _leaf(self, value: Any) -> Markup:
        if not isinstance(value, str):
            text = json.dumps(value)
            return Markup('<span class="value">{}</span>').format(shown_lines(text, 400))
        if len(value) <= _LINE and "\n" not in value:
            quoted = Markup('<span class="text">"<bdi>{}</bdi>"</span>')
            return quoted.format(self._marked(value))
        return Markup('<pre tabindex="0"><bdi>{}</bdi></pre>').format(self._marked(value))

    def _marked(self, text: str) -> Markup:
        """Return the text with the longest passage that decided the verdict highlighted."""
        text = shown_lines(text, LONGEST)
        for part in self._decided:
            before, found, after = text.partition(part)
            if found:
                return Markup("{}<mark>{}</mark>{}").format(before, found, after)
        return escape(text)


def _line(text: str) -> str:
    return shown_lines(text, 300)
