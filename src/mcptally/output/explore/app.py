"""Defines the server of `explore`: access control, and the first page, which is sent first.

The head of the first page needs only the manifest. The packages that read tables, and the other
pages, are imported in a thread meanwhile. The folder's docstring describes how the store is
protected.
"""

import asyncio
import contextlib
import functools
import hmac
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mcptally.output.explore import page
from mcptally.output.explore.addresses import Links
from mcptally.output.explore.page import Page, Section
from mcptally.output.explore.responses import responder, tag_of, unless_known
from mcptally.output.explore.state import State
from mcptally.plural import count

if TYPE_CHECKING:
    from mcptally.output.explore.pages import Loaded

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


_SECTIONS: Final = {
    "outcomes": "Calls to tools",
    "servers": "Servers",
    "reviewed": "Reviewed",
    "timeline": "Calls over time",
    "problems": "What to look at first",
}
"""Names and titles of the first page's sections, in the order of computation."""
_ORDER: Final = ("outcomes", "reviewed", "problems", "timeline", "servers")


def first_page(state: State, loading: "Future[Loaded]") -> Page:
    """Return the store's first page; its sections wait for the packages that compute them."""
    manifest = state.manifest()
    rows = manifest["rows"]
    numbers = (("calls", "request"), ("messages", "message"), ("findings", "finding"))
    counts = ", ".join(count(rows[name], noun) for name, noun in numbers)
    scored = str(manifest.get("scored_at", ""))[:16].replace("T", " ")

    def section(name: str) -> Any:
        return loading.result().first[name]()

    return Page(
        "archive",
        "Overview",
        summary=f"{counts} in {count(rows['recordings'], 'recording')}; scored {scored} UTC",
        sections=[
            Section(name, title, functools.partial(section, name))
            for name, title in _SECTIONS.items()
        ],
        order=_ORDER,
    )


class _Server(uvicorn.Server):
    """A server that stops if loading fails, and cancels running queries when it stops."""

    def __init__(self, config: uvicorn.Config, loading: "Future[Loaded]") -> None:
        super().__init__(config)
        self._loading: Final = loading
        loading.add_done_callback(self._loaded)

    def _loaded(self, loading: "Future[Loaded]") -> None:
        if loading.exception() is not None:
            self.should_exit = True
        elif self.should_exit:
            loading.result().answers.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._loading.add_done_callback(self._loaded)
        await super().shutdown(sockets)


@contextlib.contextmanager
def serving(
    state: State,
    listener: socket.socket,
    *,
    token: str,
    seconds: float = SECONDS,
    who: str | None = None,
) -> Iterator[Callable[[], None]]:
    """Prepare a server for a store; on exit, wait for its threads.

    Args:
        state: the state of the store.
        listener: the listening socket.
        token: the secret that every address starts with.
        seconds: the time limit for an answer.
        who: the reviewer's name; by default, the user's name.

    Yields:
        A function that serves until a signal stops it.
    """
    links = Links(f"/{token}/")
    templates = page.environment(links)

    def load() -> "Loaded":
        # Everything that the first page's head needs is imported before.
        from mcptally.output.explore import pages  # noqa: PLC0415

        return pages.load(state, links, templates, seconds, who)

    with ThreadPoolExecutor(1) as threads:
        templates.get_template("frame.html")  # compile it before the first request
        loading = threads.submit(load)
        first = responder(templates, lambda _: first_page(state, loading), state.mark)
        assets = [
            Route(f"{links.root}{name}", functools.partial(_asset, name, kind))
            for name, kind in (("explore.css", "text/css"), ("explore.js", "text/javascript"))
        ]

        async def others(scope: Scope, receive: Receive, send: Send) -> None:
            loaded = await asyncio.wrap_future(loading)
            await loaded.application(scope, receive, send)

        routes = [Route(links.root, first), *assets, Mount(f"/{token}", others)]
        config = uvicorn.Config(
            _OnlyOurselves(Starlette(routes=routes), token, listener.getsockname()[1]),
            log_level="error",
            access_log=False,
            server_header=False,
            headers=list(HEADERS.items()),
            ws="none",
        )

        def serve() -> None:
            _Server(config, loading).run(sockets=[listener])
            loading.result()  # raises the error if loading failed

        try:
            yield serve
        finally:
            if loading.exception() is None:
                loading.result().answers.close()


def _asset(name: str, kind: str, request: Request) -> Response:
    text = page.asset(name)
    return unless_known(request, tag_of(text), lambda: Response(text, media_type=kind))
