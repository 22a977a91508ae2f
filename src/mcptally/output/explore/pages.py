"""Serves all pages below the first; importing this module takes longer than everything else."""

import functools
import io
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mcptally.errors import McptallyError, UsageError
from mcptally.output.explore import (
    archive,
    call,
    comparison,
    group,
    review,
    search,
    server,
    session,
    table,
    tool,
)
from mcptally.output.explore.addresses import Links
from mcptally.output.explore.answers import ROWS, Answers
from mcptally.output.explore.page import Page
from mcptally.output.explore.responses import not_done, responder
from mcptally.output.explore.review import Chosen, Reviews
from mcptally.output.explore.state import State
from mcptally.output.formats.writers import WRITERS
from mcptally.output.html import template_axes, template_filters
from mcptally.tables.values import cell

Handler: TypeAlias = Callable[[Answers, Links, Request], Page | Response]


def _session(answers: Answers, links: Links, request: Request) -> Page:
    given = request.query_params
    number = given.get("page", "")
    return session.page(
        answers,
        links,
        given.get("session", ""),
        given.get("at", ""),
        int(number) if number.isdecimal() and len(number) < 9 else 0,
    )


def _table(answers: Answers, links: Links, request: Request) -> Page:
    view = table.view(request.path_params["source"], request.query_params.multi_items())
    return table.page(answers, links, view)


def _to_table(_: Answers, links: Links, request: Request) -> Response:
    given = dict(request.query_params)
    return RedirectResponse(links.table(given.pop("source", "tool_scores"), **given), 303)


_DOWNLOADS: Final = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


def _download(answers: Answers, _: Links, request: Request) -> Response:
    """Return up to `ROWS` rows of a view, with the columns shown on its page, as a file."""
    kind = request.path_params["format"]
    if kind not in _DOWNLOADS:
        raise UsageError(f"there is no download as {kind!r}; there are: {', '.join(_DOWNLOADS)}")
    view = table.view(request.path_params["source"], request.query_params.multi_items())
    answered = table.Answered(answers, view)
    rows = answered.rows(answered.columns, ROWS).to_arrow()
    file = io.BytesIO()
    WRITERS[kind](iter(rows.to_batches()), rows.schema, file)
    headers = {"Content-Disposition": f'attachment; filename="{view.source}.{kind}"'}
    return Response(file.getvalue(), media_type=_DOWNLOADS[kind], headers=headers)


def _search(answers: Answers, links: Links, request: Request) -> Page | Response:
    text = request.query_params.get("q", "").strip()
    if (found := search.call_with_id(answers, text)) is not None:
        return RedirectResponse(links.call(found), 303)
    return search.page(answers, text)


def _sql(answers: Answers, links: Links, request: Request) -> Page:
    query = request.query_params.get("query", "").strip()
    return table.sql_page(links, query, lambda: answers.sql(query))


def _server(answers: Answers, links: Links, request: Request) -> Page:
    return server.page(answers, links, request.query_params.get("server"))


def _tool(answers: Answers, links: Links, request: Request) -> Page | Response:
    of_server, name = (request.query_params.get(key) for key in ("server", "tool"))
    if tool.is_known(answers, of_server, name):
        return tool.page(answers, links, of_server, name)
    # In some answers, the column `tool` contains the method of a request that is not a tool call.
    return RedirectResponse(links.calls(server=of_server, method=name), 303)


def _group(answers: Answers, links: Links, request: Request) -> Page:
    return group.page(answers, links, request.query_params.get("call", ""))


def _call(answers: Answers, links: Links, request: Request) -> Page:
    return call.page(answers, links, request.path_params["call"])


def _compare(answers: Answers, _: Links, request: Request) -> Page:
    return comparison.page(answers, request.query_params)


PAGES: Final[dict[str, Handler]] = {
    "server": _server,
    "tool": _tool,
    "group": _group,
    "call/{call}": _call,
    "session": _session,
    "questions": lambda *_: table.index_page(),
    "table": _to_table,
    "table/{source}": _table,
    "download/{format}/{source}": _download,
    "compare": _compare,
    "search": _search,
    "sql": _sql,
}
"""Maps paths below the root to the pages' handlers."""


def _review(reviews: Reviews) -> dict[str, Handler]:
    """Return the handlers for the pages of the review."""

    def first(_: Answers, __: Links, request: Request) -> Page:
        return review.page(reviews, Chosen.of(request.query_params))

    def following(_: Answers, links: Links, request: Request) -> Response:
        address = reviews.following(links, Chosen.of(request.query_params))
        return RedirectResponse(address, 303)

    def item(answers: Answers, links: Links, request: Request) -> Page:
        wanted = request.query_params.get("call", "")
        return review.item_page(answers, links, reviews, wanted, Chosen.of(request.query_params))

    return {"review": first, "review/next": following, "review/call": item}


class Loaded(NamedTuple):
    """The parts of the server that need the large packages."""

    application: ASGIApp
    """Serves all pages but the first."""
    first: Mapping[str, Callable[[], Any]]
    """Maps the sections of the first page to functions that return their content."""
    answers: Answers


def complete(templates: jinja2.Environment) -> None:
    """Add the filters and variables of the pages' and of the report's macros."""
    templates.filters |= template_filters() | {"cell": lambda value, name="": cell(name, value)}
    templates.globals |= {"many_servers": False, **template_axes()}


def load(
    state: State, links: Links, templates: jinja2.Environment, seconds: float, who: str | None
) -> Loaded:
    """Open the store, complete the templates' environment, and start to compute answers.

    Args:
        state: the state of the served store.
        links: builds addresses.
        templates: the environment from `page.environment`.
        seconds: the time limit for an answer.
        who: the reviewer's name; by default, the user's name.
    """
    complete(templates)
    answers = Answers(state, seconds)
    desk = Reviews(answers.recorded, state.given_reviews, who)

    def route(pattern: str, handler: Handler, *, kept: bool = True) -> Route:
        handle = functools.partial(handler, answers, links)
        return Route(f"/{pattern}", responder(templates, handle, state.mark, kept=kept))

    routes = [route(pattern, handler) for pattern, handler in PAGES.items()]
    routes += [route(pattern, handler, kept=False) for pattern, handler in _review(desk).items()]
    routes += [
        Route(f"/{pattern}", _form(links, templates, act), methods=["POST"])
        for pattern, act in (("review/answer", desk.answer), ("review/sample", desk.draw))
    ]
    first = archive.sections(answers)
    answers.prepare(first["outcomes"])
    return Loaded(Starlette(routes=routes), first, answers)


FORM: Final = 16_384
"""Maximum size of a submitted form, in bytes."""


def _form(
    links: Links, templates: jinja2.Environment, act: Callable[[Links, Mapping[str, str]], str]
) -> Callable[[Request], Awaitable[Response]]:
    """Return a form handler that calls `act` and redirects to the address that `act` returns."""

    async def respond(request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > FORM:
                return PlainTextResponse(f"more than {FORM} bytes\n", 413)
        given = dict(parse_qsl(body.decode("utf-8", "replace")))
        try:
            return RedirectResponse(await run_in_threadpool(act, links, given), 303)
        except McptallyError as error:
            return not_done(templates, "Not done", error, 400)

    return respond
