"""A server on FastMCP, of the Python SDK 1.x (`sdk`) or of the project FastMCP (`own`).

Usage: fastmcp_server.py sdk|own [HTTP PORT]
"""

import asyncio
import sys
from typing import Any

from pydantic import BaseModel

if sys.argv[1] == "sdk":
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.server.fastmcp.exceptions import ToolError
else:
    from fastmcp import Context, FastMCP
    from fastmcp.exceptions import ToolError

server: Any = FastMCP(f"fleet-fastmcp-{sys.argv[1]}")


class Answer(BaseModel):
    """What the user is asked for."""

    city: str


class Weather(BaseModel):
    degrees: int


@server.tool()
async def work(count: int) -> str:
    return f"done {count} times"


@server.tool()
async def crash(count: int) -> str:
    return str({}["items"])


@server.tool()
async def refuse(count: int) -> str:
    raise ToolError(f"Invalid count {count}: must be at least 1")


@server.tool()
async def hang() -> str:
    await asyncio.sleep(60)
    return "late"


@server.tool()
async def report(ctx: Context) -> str:
    await ctx.report_progress(1, 2)
    await ctx.info("half way")
    await ctx.report_progress(2, 2)
    return "reported"


@server.tool()
async def ask(ctx: Context) -> str:
    asked = await ctx.elicit("Which city?", Answer)
    return f"the user said {asked.action}"


@server.tool()
async def weather(city: str) -> Weather:
    return Weather(degrees=4)


@server.resource("note://1")
def note() -> str:
    return "a note"


@server.prompt()
def greet(language: str) -> str:
    return f"Greet in {language}"


if len(sys.argv) == 2:
    server.run()
elif sys.argv[1] == "own":
    server.run(transport="http", port=int(sys.argv[2]))
else:
    server.settings.port = int(sys.argv[2])
    server.run(transport="streamable-http")
