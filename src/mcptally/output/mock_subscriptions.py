"""Sends the recorded server's notifications to the mock server's subscribed clients."""

import collections
from collections.abc import Callable, Iterable
from typing import Any, Final

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from mcptally.protocol.revisions import STATELESS

Context = ServerRequestContext[Any, Any]

UPDATED: Final = "notifications/resources/updated"
CHANGES: Final[dict[str, Callable[[], ServerEvent]]] = {
    "notifications/tools/list_changed": ToolsListChanged,
    "notifications/prompts/list_changed": PromptsListChanged,
    "notifications/resources/list_changed": ResourcesListChanged,
}
"""Maps change notifications to the `mcp` library's event classes for subscribers."""

METHODS: Final = ("subscriptions/listen", "resources/subscribe", "resources/unsubscribe")


def session_id(ctx: Context) -> str | None:
    """Return the HTTP session's id; None on stdio and in revisions without sessions."""
    return None if ctx.request is None else ctx.request.headers.get("mcp-session-id")


class Subscriptions:
    """The subscriptions of all clients.

    Stores do not contain the notifications' parameters, so a recorded update is sent for each
    resource that a client has subscribed to.
    """

    def __init__(self, server: Server[Any], methods: Iterable[str]) -> None:
        """Register handlers for `methods`, the recorded methods among `METHODS`."""
        self._bus: Final = InMemorySubscriptionBus()
        self._listen: Final = ListenHandler(self._bus)
        self._listened: Final[collections.Counter[str]] = collections.Counter()
        self._subscribed: Final[dict[str | None, set[str]]] = collections.defaultdict(set)
        handlers: dict[str, tuple[type[types.RequestParams], Callable[[Context, Any], Any]]] = {
            "subscriptions/listen": (types.SubscriptionsListenRequestParams, self._on_listen),
            "resources/subscribe": (types.SubscribeRequestParams, self._on_subscribe),
            "resources/unsubscribe": (types.UnsubscribeRequestParams, self._on_unsubscribe),
        }
        for method in methods:
            server.add_request_handler(method, *handlers[method])

    async def _on_listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        wanted = collections.Counter(params.notifications.resource_subscriptions or ())
        self._listened.update(wanted)
        try:
            return await self._listen(ctx, params)
        finally:
            self._listened.subtract(wanted)

    async def _on_subscribe(
        self, ctx: Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        self._subscribed[session_id(ctx)].add(str(params.uri))
        return types.EmptyResult()

    async def _on_unsubscribe(
        self, ctx: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self._subscribed[session_id(ctx)].discard(str(params.uri))
        return types.EmptyResult()

    async def send(self, ctx: Context, notifications: Iterable[str]) -> None:
        """Send notifications, given by their methods, to the subscribed clients."""
        for method in notifications:
            if ctx.protocol_version not in STATELESS:
                await self._send_in_session(ctx, method)
            elif method == UPDATED:
                for uri in +self._listened:
                    await self._bus.publish(ResourceUpdated(uri=uri))
            else:
                await self._bus.publish(CHANGES[method]())

    async def _send_in_session(self, ctx: Context, method: str) -> None:
        if method == UPDATED:
            for uri in sorted(self._subscribed[session_id(ctx)]):
                await ctx.session.send_resource_updated(uri)
        elif method == "notifications/tools/list_changed":
            await ctx.session.send_tool_list_changed()
        elif method == "notifications/prompts/list_changed":
            await ctx.session.send_prompt_list_changed()
        else:
            await ctx.session.send_resource_list_changed()
