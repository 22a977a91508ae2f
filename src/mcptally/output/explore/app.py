"""Defines the web application of `explore`: addresses, access control and limits.

The docstring of the folder describes how the store is protected.
"""

import contextlib
import functools
import hashlib
import hmac
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import parse_qsl

import jinja2
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import mcptally
from mcptally.errors import McptallyError
from mcptally.output.explore import (
    archive,
    call,
    comparison,
    download,
    group,
    page,
    review,
    search,
    server,
    session,
    table,
    tool,
)
from mcptally.output.explore.addresses import Links
from mcptally.output.explore.answers import Answers
from mcptally.output.explore.page import Page
from mcptally.output.explore.review import Chosen, Reviews

SECONDS: Final = 20.0
"""Default time limit for an answer, in seconds."""

_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
HEADERS: Final = {
    # Browsers may cache a page, but must revalidate it each time (ETag).
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Addresses contain the token. With `no-referrer`, our own forms would send no `Origin`.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of all responses."""


class _OnlyOurselves:
    """Rejects requests that have a foreign `Host` or `Origin` or lack the token.

    A page on another site can make a browser send requests to loopback, even under a host name that
    resolves to 127.0.0.1 (DNS rebinding). But the other page cannot set `Host` and `Origin`, and
    does not know the token.
    """

    def __init__(self, application: ASGIApp, token: str, port: int) -> None:
        self._application: Final = application
        self._token: Final = token.encode()
        names = ("127.0.0.1", "localhost", "[::1]")
        self._hosts: Final = {f"{name}:{port}".encode() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope)) is not None:
            await refusal(scope, receive, send)
            return
        await self._application(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = scope["headers"]
        hosts = [value.lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return PlainTextResponse("this server answers only on loopback\n", 421)
        origins = [value.lower() for name, value in headers if name == b"origin"]
        wanted = [b"http://" + hosts[0]] if scope["method"] == "POST" else []
        if origins not in (wanted, [b"http://" + hosts[0]]):
            return PlainTextResponse("requests of other sites are refused\n", 403)
        # The path `*` contains no slash.
        _, _, path = scope["path"].encode("utf-8", "replace").partition(b"/")
        first = path.partition(b"/")[0]
        if not hmac.compare_digest(first, self._token):
            text = "open the address that mcptally explore printed: it contains a token\n"
            return PlainTextResponse(text, 404)
        return None


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


def _to_table(answers: Answers, links: Links, request: Request) -> Response:
    del answers
    given = dict(request.query_params)
    return RedirectResponse(links.table(given.pop("source", "tool_scores"), **given), 303)


def _download(answers: Answers, links: Links, request: Request) -> Response:
    del links
    view = table.view(request.path_params["source"], request.query_params.multi_items())
    return download.response(answers, view, request.path_params["format"])


def _search(answers: Answers, links: Links, request: Request) -> Page | Response:
    text = request.query_params.get("q", "").strip()
    if (found := search.call_with_id(answers, text)) is not None:
        return RedirectResponse(links.call(found), 303)
    return search.page(answers, links, text)


def _sql(answers: Answers, links: Links, request: Request) -> Page:
    query = request.query_params.get("query", "").strip()
    return table.sql_page(links, query, lambda: answers.sql(query))


def _questions(answers: Answers, links: Links, request: Request) -> Page:
    del answers, links, request
    return table.index_page()


def _archive(answers: Answers, links: Links, request: Request) -> Page:
    del links, request
    return archive.page(answers)


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


def _compare(answers: Answers, links: Links, request: Request) -> Page:
    return comparison.page(answers, links, request.query_params)


PAGES: Final[dict[str, Handler]] = {
    "": _archive,
    "server": _server,
    "tool": _tool,
    "group": _group,
    "call/{call}": _call,
    "session": _session,
    "questions": _questions,
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

    def first(answers: Answers, links: Links, request: Request) -> Page:
        del answers, links
        return review.page(reviews, Chosen.of(request.query_params))

    def following(answers: Answers, links: Links, request: Request) -> Response:
        del answers
        address = reviews.following(links, Chosen.of(request.query_params))
        return RedirectResponse(address, 303)

    def item(answers: Answers, links: Links, request: Request) -> Page:
        wanted = request.query_params.get("call", "")
        return review.item_page(answers, links, reviews, wanted, Chosen.of(request.query_params))

    return {"review": first, "review/next": following, "review/call": item}


class _Server(uvicorn.Server):
    """A server that cancels running queries when it is asked to stop."""

    def __init__(self, config: uvicorn.Config, answers: Answers) -> None:
        super().__init__(config)
        self._answers: Final = answers

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._answers.cancel()
        await super().shutdown(sockets)


@contextlib.contextmanager
def serving(
    path: Path,
    listener: socket.socket,
    *,
    token: str,
    seconds: float = SECONDS,
    base: Path | None = None,
    reviews: Path | None = None,
    who: str | None = None,
) -> Iterator[Callable[[], None]]:
    """Prepare a server for a store; on exit, wait for its threads.

    Args:
        path: the store.
        listener: the listening socket.
        token: the secret that every address starts with.
        seconds: the time limit for an answer.
        base: an earlier store to compare with.
        reviews: the file of review answers; by default, the file in the archive's folder.
        who: the reviewer's name; by default, the user's name.

    Yields:
        A function that serves until a signal stops it.

    Raises:
        StoreError: there is no store.
    """
    with contextlib.closing(Answers(path, seconds, base, reviews)) as answers:
        desk = Reviews(answers.recorded, reviews, who)
        config = uvicorn.Config(
            _application(answers, desk, token, listener.getsockname()[1]),
            log_level="error",
            access_log=False,
            server_header=False,
            headers=list(HEADERS.items()),
            ws="none",
        )

        def serve() -> None:
            answers.prepare()
            _Server(config, answers).run(sockets=[listener])

        yield serve


def _application(answers: Answers, desk: Reviews, token: str, port: int) -> ASGIApp:
    links = Links(f"/{token}/")
    templates = page.environment(links)
    next(
        page.stream(templates, archive.page(answers), lambda: None)
    )  # compile the templates before the first request arrives
    pages = [
        Route(f"/{token}/{pattern}", _responder(answers, links, templates, handler))
        for pattern, handler in PAGES.items()
    ]
    pages += [
        Route(f"/{token}/{pattern}", _responder(answers, links, templates, handler, kept=False))
        for pattern, handler in _review(desk).items()
    ]
    pages += [
        Route(f"/{token}/{pattern}", _form(links, templates, act), methods=["POST"])
        for pattern, act in (("review/answer", desk.answer), ("review/sample", desk.draw))
    ]
    assets = [
        Route(f"/{token}/{name}", functools.partial(_asset, name, kind))
        for name, kind in (("explore.css", "text/css"), ("explore.js", "text/javascript"))
    ]
    return _OnlyOurselves(Starlette(routes=[*assets, *pages]), token, port)


def _asset(name: str, kind: str, request: Request) -> Response:
    text = page.asset(name)
    return _unless_known(request, _tag(text), lambda: Response(text, media_type=kind))


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
            return _not_done(templates, "Not done", error, 400)

    return respond


def _not_done(
    templates: jinja2.Environment, title: str, error: McptallyError, status: int
) -> Response:
    return HTMLResponse(page.whole(templates, page.message(title, str(error))), status)


def _responder(
    answers: Answers,
    links: Links,
    templates: jinja2.Environment,
    handler: Handler,
    *,
    kept: bool = True,
) -> Callable[[Request], Response]:
    """Return a request handler that streams a page while it is being rendered.

    Errors are shown as pages. A browser may reuse a page until the store changes, unless one of its
    sections failed or `kept` is false.
    """
    incomplete: set[str] = set()

    def respond(request: Request) -> Response:
        address = str(request.url)
        tag = None if address in incomplete or not kept else _tag(str(answers.mark()))

        def made() -> Response:
            incomplete.discard(address)
            try:
                found = handler(answers, links, request)
            except McptallyError as error:
                return _not_done(templates, "Not shown", error, 404)
            if isinstance(found, Response):
                return found
            parts = page.stream(templates, found, lambda: incomplete.add(address))
            headers = {} if tag is None else {"ETag": tag}
            return StreamingResponse(parts, media_type="text/html", headers=headers)

        return made() if tag is None else _unless_known(request, tag, made)

    return respond


def _tag(state: str) -> str:
    """Return the ETag of pages that this version renders from a given state of the store."""
    digest = hashlib.sha256(f"{mcptally.__version__} {state}".encode()).hexdigest()
    return f'"{digest[:32]}"'


def _unless_known(request: Request, tag: str, make: Callable[[], Response]) -> Response:
    """Make a response, or return 304 if the browser already has the page."""
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers={"ETag": tag})
    return make()
