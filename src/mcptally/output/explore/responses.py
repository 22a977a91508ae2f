"""Responds to requests with streamed pages and ETags."""

import hashlib
from collections.abc import Callable
from typing import TypeAlias

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

import mcptally
from mcptally.errors import McptallyError
from mcptally.output.explore import page
from mcptally.output.explore.page import Page

Handler: TypeAlias = Callable[[Request], Page | Response]


def not_done(
    templates: jinja2.Environment, title: str, error: McptallyError, status: int
) -> Response:
    """Return the page about an error."""
    return HTMLResponse(page.whole(templates, page.message(title, str(error))), status)


def responder(
    templates: jinja2.Environment,
    handler: Handler,
    mark: Callable[[], object],
    *,
    kept: bool = True,
) -> Callable[[Request], Response]:
    """Return a request handler that streams a page while it is being rendered.

    Errors are shown as pages. A browser may reuse a page until the store changes, unless one of its
    sections failed or `kept` is false.

    Args:
        templates: the templates' environment.
        handler: returns the page.
        mark: returns a value that changes with the store.
        kept: whether the page depends on nothing but the store.
    """
    incomplete: set[str] = set()

    def respond(request: Request) -> Response:
        address = str(request.url)
        tag = None if address in incomplete or not kept else tag_of(str(mark()))

        def made() -> Response:
            incomplete.discard(address)
            try:
                found = handler(request)
            except McptallyError as error:
                return not_done(templates, "Not shown", error, 404)
            if isinstance(found, Response):
                return found
            parts = page.stream(templates, found, lambda: incomplete.add(address))
            headers = {} if tag is None else {"ETag": tag}
            return StreamingResponse(parts, media_type="text/html", headers=headers)

        return made() if tag is None else unless_known(request, tag, made)

    return respond


def tag_of(state: str) -> str:
    """Return the ETag of pages that this version renders from a given state of the store."""
    digest = hashlib.sha256(f"{mcptally.__version__} {state}".encode()).hexdigest()
    return f'"{digest[:32]}"'


def unless_known(request: Request, tag: str, make: Callable[[], Response]) -> Response:
    """Make a response, or return 304 if the browser already has the page."""
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers={"ETag": tag})
    return make()
