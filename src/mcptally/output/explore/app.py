"""The web application of `explore`: addresses, who may ask, and limits.

See the folder's docstring for what protects the store.
"""

import contextlib
import functools
import hmac
import secrets
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mcptally.analytics.store import Store, open_store, retry_if_replaced
from mcptally.analytics.views import question_titles
from mcptally.errors import McptallyError, QueryError, UsageError, near
from mcptally.output.explore import pages
from mcptally.output.explore.pages import FILTERS, ROWS, Links
from mcptally.output.html import content_security_policy, page_text

SECONDS: Final = 20.0
"""The default time limit of an answer."""
MEMORY: Final = "2GB"
"""The memory limit of an answer."""

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": content_security_policy(more_styles="'self'", forms="'self'")
    + "; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every response; `listening` gives them to the server."""


class _OnlyOurselves:
    """Refuses requests whose `Host`, `Origin` or token is not that of this server.

    A page of another site can make a browser send requests to loopback, even under a host name that
    resolves to 127.0.0.1 (DNS rebinding). It cannot choose `Host` and `Origin`, and does not know
    the token.
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
        for name, value in headers:
            if name == b"origin" and value.lower() != b"http://" + hosts[0]:
                return PlainTextResponse("requests of other sites are refused\n", 403)
        _, _, path = scope["path"].encode("utf-8", "replace").partition(b"/")  # `*` has no slash
        first = path.partition(b"/")[0]
        if not hmac.compare_digest(first, self._token):
            text = "open the address that mcptally explore printed: it contains a token\n"
            return PlainTextResponse(text, 404)
        return None


def application(path: Path, *, token: str, port: int, seconds: float = SECONDS) -> ASGIApp:
    """The application for the store at `path`.

    Args:
        path: the store.
        token: the secret with which every address begins.
        port: the port of the server, which the `Host` of every request names.
        seconds: the time limit of an answer.

    Raises:
        StoreError: there is no store.
    """
    store = open_store(path, masked=True)
    limited = open_store(path, memory=MEMORY, masked=True)
    links = Links(f"/{token}/")
    page_of_report = _latest_report(open_store(path), links)  # it masks its texts itself

    def answer(ask: Callable[[], duckdb.DuckDBPyRelation]) -> pa.Table:
        with limited.within(seconds, rows=ROWS + 1):
            return retry_if_replaced([limited], lambda: _table(ask()))

    def show_report(_: Request) -> Response:
        return HTMLResponse(page_of_report())

    def call(request: Request) -> str:
        return pages.call(store, links, request.path_params["call"])

    def session(request: Request) -> str:
        number = request.query_params.get("page", "1")
        return retry_if_replaced(
            [store],
            lambda: pages.session(
                store,
                links,
                request.path_params["session"],
                int(number) if number.isdecimal() and len(number) < 9 else 1,
            ),
        )

    def question(request: Request) -> str:
        asked = request.path_params["question"]
        if asked not in question_titles():
            raise QueryError(f"no question is called {asked!r}{near(asked, question_titles())}")
        filters = {name: request.query_params.get(name) or None for name in FILTERS}
        fewest = filters["min_calls"]
        if fewest is not None and not (fewest.isdecimal() and len(fewest) < 16):
            raise UsageError(f"min calls: {fewest!r} is not a number of calls")
        given: dict[str, Any] = filters | {"min_calls": int(fewest) if fewest else None}
        return pages.question(
            links,
            asked,
            filters,
            lambda: answer(lambda: limited.ask(asked, **given)),
            all_columns="all" in request.query_params,
        )

    def sql(request: Request) -> str:
        query = request.query_params.get("query", "").strip()
        if not query:
            return pages.sql(links, "", None)
        try:
            return pages.sql(links, query, lambda: answer(lambda: limited.sql(query)))
        except McptallyError as error:
            return pages.sql(links, query, None, str(error))

    def to_call(request: Request) -> Response:
        return RedirectResponse(links.call(request.query_params.get("id", "").strip()), 303)

    def to_question(request: Request) -> Response:
        given = dict(request.query_params)
        asked = given.pop("asked", "tool_scores")
        return RedirectResponse(links.question(asked, **given), 303)

    def style(_: Request) -> Response:
        return Response(pages.style(), media_type="text/css")

    root = f"/{token}"
    routes = [
        Route(f"{root}/", _page(links, show_report)),
        Route(f"{root}/style.css", style),
        Route(f"{root}/call", to_call),
        Route(f"{root}/call/{{call}}", _page(links, call)),
        Route(f"{root}/session/{{session:path}}", _page(links, session)),
        Route(f"{root}/question", to_question),
        Route(f"{root}/question/{{question}}", _page(links, question)),
        Route(f"{root}/sql", _page(links, sql)),
    ]
    return _OnlyOurselves(Starlette(routes=routes), token, port)


def _table(relation: duckdb.DuckDBPyRelation) -> pa.Table:
    try:
        return relation.to_arrow_table()
    except duckdb.Error as error:
        raise QueryError(f"{error}") from error


def _page(
    links: Links, handler: Callable[[Request], str | Response]
) -> Callable[[Request], Response]:
    """A handler whose expected errors become a page."""

    @functools.wraps(handler)
    def respond(request: Request) -> Response:
        try:
            found = handler(request)
        except McptallyError as error:
            return HTMLResponse(pages.message(links, "Not found", str(error)), 404)
        return found if isinstance(found, Response) else HTMLResponse(found)

    return respond


def _latest_report(store: Store, links: Links) -> Callable[[], str]:
    """The report of the store as it is now; made again only after a run replaced the store."""
    lock = threading.Lock()
    made: dict[tuple[tuple[int, int], ...], str] = {}

    def page() -> str:
        with lock:
            mark = store.mark()
            if mark not in made:
                made.clear()
                made[mark] = page_text(store, address_of_call=links.call)
            return made[mark]

    return page


@contextlib.contextmanager
def listening(
    path: Path, *, port: int = 0, seconds: float = SECONDS
) -> Iterator[tuple[str, Callable[[], None]]]:
    """A server for the store at `path` whose socket already listens, and its address.

    Yields:
        The address to open, with the token, and a function that serves until Ctrl-C.

    Raises:
        StoreError: there is no store.
        UsageError: the port cannot be used.
    """
    token = secrets.token_urlsafe(24)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(f"port {port} cannot be used: {error.strerror}") from error
        listener.listen()
        used = listener.getsockname()[1]
        made = application(path, token=token, port=used, seconds=seconds)
        config = uvicorn.Config(
            made,
            log_level="critical",
            access_log=False,
            server_header=False,
            headers=list(HEADERS.items()),
            ws="none",
        )
        server = uvicorn.Server(config)
        yield f"http://127.0.0.1:{used}/{token}/", lambda: server.run(sockets=[listener])


@contextlib.contextmanager
def redirect_file(address: str) -> Iterator[Path]:
    """A page that only this user can read and that leads to `address`; removed at the end.

    Other users can read the command line of a browser, so the token must not be on it.
    """
    with tempfile.TemporaryDirectory(prefix="mcptally-explore-") as folder:  # mode 700
        page = Path(folder) / "open.html"
        page.write_text(
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0; url={address}"><title>mcptally</title>'
            f'<a href="{address}">Open the store</a>',
            encoding="utf-8",
        )
        yield page
