"""Implements the demo's MCP client: starts servers behind the recorder, and calls their tools."""

import asyncio
import contextlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any, Final

from mcptally.demo.servers import BOOKSHOP, NEWSLETTER, VERSIONS

SESSIONS: Final = 6
"""Number of sessions with each version of the bookshop server; enough to compute intervals."""
SECONDS: Final = 1.0
"""Time limit of the client for a call, in seconds."""
REVISION: Final = "2025-11-25"

CALLS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("list_shelves", {}),
    ("search_books", {"query": "paper", "limit": 10}),
    ("search_books", {"query": "ink", "limit": 500}),
    ("search_books", {"query": "paper", "limit": 1000}),
    ("search_books", {"query": "glue", "limit": 5000}),
    ("get_book", {"isbn": "978-3-16-148410-0"}),
    ("get_book", {"isbn": "A History of Paper"}),
    ("convert_price", {"amount": 10, "currency": "USD"}),
    ("convert_price", {"amount": 10, "currency": "JPY"}),
    ("order_book", {"isbn": "978-3-16-148410-0"}),
    ("recommend", {"genre": "history"}),
    ("recommend", {"genre": "poetry"}),
    ("print_catalogue", {"format": "markdown"}),
    ("print_catalogue", {"format": "pdf"}),
)
"""The calls that the client makes in each session, each as a tool and its arguments."""


def record(folder: Path) -> None:
    """Record the sessions of the demo in a folder."""
    asyncio.run(_record(folder))


async def _record(folder: Path) -> None:
    for version in VERSIONS:
        sessions = [_session(folder, BOOKSHOP, version) for _ in range(SESSIONS)]
        await asyncio.gather(*sessions, _session(folder, NEWSLETTER, version))


async def _session(folder: Path, server: str, version: str) -> None:
    """Start a server behind the recorder, make all calls, and close the server's stdin."""
    python = [sys.executable, "-m"]
    record = [*python, "mcptally", "record", "--out", str(folder), "--name", server, "--"]
    command = [*record, *python, "mcptally.demo.servers", server, version]
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=nothing
    )
    client = _Client(process)
    with contextlib.suppress(ConnectionError, EOFError):  # the server has exited
        await client.converse()
    if process.stdin is not None:
        process.stdin.close()
    await process.wait()


class _Client:
    """An MCP client that is connected to a server process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
        self._to_server, self._from_server = process.stdin, process.stdout
        self._ids = itertools.count(1)

    async def converse(self) -> None:
        """Do the handshake, list the tools, and make all calls.

        Raises:
            ConnectionError, EOFError: the server has exited.
        """
        about = {"clientInfo": {"name": "demo", "version": "1.0"}, "capabilities": {}}
        await self._request("initialize", {"protocolVersion": REVISION, **about})
        await self._send({"method": "notifications/initialized"})
        await self._request("tools/list", {})
        for tool, arguments in CALLS:
            await self._request("tools/call", {"name": tool, "arguments": arguments})

    async def _request(self, method: str, params: dict[str, Any]) -> None:
        """Send a request and wait for the reply; cancel the request after the time limit."""
        number = next(self._ids)
        await self._send({"id": number, "method": method, "params": params})
        limit = SECONDS if method == "tools/call" else None
        try:
            await asyncio.wait_for(self._reply(number), limit)
        except TimeoutError:
            why = {"requestId": number, "reason": f"Request timed out after {SECONDS} s"}
            await self._send({"method": "notifications/cancelled", "params": why})

    async def _reply(self, number: int) -> None:
        """Wait for the reply to a request; discard late replies to earlier requests."""
        while line := await self._from_server.readline():
            if json.loads(line)["id"] == number:
                return
        raise EOFError

    async def _send(self, message: dict[str, Any]) -> None:
        self._to_server.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        await self._to_server.drain()
