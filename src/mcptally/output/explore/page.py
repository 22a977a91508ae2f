"""Renders pages from sections: first the head, then each section once its answer is available.

A page is streamed while it is being rendered. The skeleton comes first, with a slot for each
section (declarative shadow DOM), so that a slow section does not delay other sections.
"""

import dataclasses
import functools
import itertools
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Final

import jinja2
from markupsafe import Markup

from mcptally.errors import McptallyError
from mcptally.output.explore.addresses import Links
from mcptally.redaction.display import as_message

Crumb = tuple[str, str]
"""The name and the address of a page."""


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """A part of a page that answers a question."""

    name: str
    """Name of the template macro that renders the section, and of the section's anchor."""
    title: str
    answer: Callable[[], Any]
    """Returns the argument for the macro. If the argument is None, the section is omitted or shows
    `empty`."""
    empty: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A page's template, texts and sections."""

    template: str
    title: str
    crumbs: Sequence[Crumb] = ()
    """The pages above this page, without the store's first page."""
    summary: str = ""
    """A sentence below the title."""
    about: str = ""
    """The kind of thing that the title names, such as `tool`."""
    head: Mapping[str, Any] | None = None
    """The argument for the template's macro `head`, if any."""
    sections: Sequence[Section] = ()
    order: Sequence[str] = ()
    """Section names in reading order; by default, in the order of computation."""


def environment(links: Links) -> jinja2.Environment:
    """Return the environment of the templates, which `pages.complete` extends for other pages."""
    # The loaders name folders, because they would import a package with all that it imports.
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [
                jinja2.PackageLoader("mcptally.output", "explore/templates"),
                jinja2.PackageLoader("mcptally.output", "html/templates"),
            ]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"links": links}
    return made


@functools.cache
def asset(name: str) -> str:
    """Return the pages' style sheet or script; the style sheet starts with the report's."""
    output = resources.files("mcptally.output")
    before = (output / "html/templates/page.css").read_text("utf-8")
    own = (output / "explore/templates" / name).read_text("utf-8")
    return before + own if name.endswith(".css") else own


def stream(templates: jinja2.Environment, page: Page, failed: Callable[[], None]) -> Iterator[str]:
    """Yield the parts of a page in the order in which they are sent; the first is ready at once.

    Args:
        templates: the templates' environment.
        page: the page to send.
        failed: called if a section cannot be rendered.
    """
    frame = templates.get_template("frame.html")
    head = Markup() if page.head is None else _macros(templates, page).head(page.head)
    names = {section.name: section.title for section in page.sections}
    order = [(name, names[name]) for name in page.order or names]
    start, end = frame.render(page=page, head=head, order=order).split(_CONTENT)
    return itertools.chain([start], _sections(templates, page, failed), [end])


def _macros(templates: jinja2.Environment, page: Page) -> Any:
    return templates.get_template(f"{page.template}.html").module


def _sections(
    templates: jinja2.Environment, page: Page, failed: Callable[[], None]
) -> Iterator[str]:
    for section in page.sections:
        body, problem = None, ""
        try:
            if (answer := section.answer()) is not None:
                body = getattr(_macros(templates, page), section.name)(answer)
            elif section.empty:
                body = Markup("<p>{}</p>").format(section.empty)
        except McptallyError as error:
            problem = as_message(str(error))
        except Exception as error:  # noqa: BLE001  (a bug in one section must not cut off the others)
            traceback.print_exc()
            problem = f"an error in mcptally ({type(error).__name__}); stderr has the details"
        if problem:
            failed()
        parts = templates.get_template("section.html")
        yield parts.render(section=section, body=body, problem=problem)


_CONTENT: Final = "<!--content-->"


def whole(templates: jinja2.Environment, page: Page) -> str:
    """Return the complete HTML of a page."""
    return "".join(stream(templates, page, lambda: None))


def message(title: str, text: str) -> Page:
    """Return a page with an error message."""
    return Page("message", title, head={"text": as_message(text)})
