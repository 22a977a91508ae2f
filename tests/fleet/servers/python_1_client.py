"""A client on the Python SDK 1.x. It runs steps and prints what it got for each.

Usage: python_1_client.py STEPS (URL | COMMAND...)
"""

import asyncio
import json
import os
import sys
from datetime import timedelta
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

steps, *where = sys.argv[1:]
choice = {"action": "accept"}


async def elicit(context: Any, params: Any) -> types.ElicitResult:
    content = {"city": "Oslo"} if choice["action"] == "accept" else None
    return types.ElicitResult(action=choice["action"], content=content)


async def run(client: ClientSession, step: str, *args: Any) -> Any:
    match step:
        case "call":
            return await client.call_tool(*args)
        case "report":

            async def show(progress: float, total: float | None, message: str | None) -> None:
                pass

            return await client.call_tool("report", {}, progress_callback=show)
        case "elicit":
            choice["action"] = args[0]
            return await client.call_tool(args[1], {})
        case "prompt":
            return await client.get_prompt("greet", {"language": "de"})
        case "read":
            return await client.read_resource(args[0])
        case "timeout":
            limit = timedelta(seconds=args[1])
            return await client.call_tool(args[0], {}, read_timeout_seconds=limit)


async def main() -> None:
    if where[0].startswith("http"):
        opening: Any = streamablehttp_client(where[0])
    else:
        about = StdioServerParameters(command=where[0], args=where[1:], env=dict(os.environ))
        opening = stdio_client(about)
    async with opening as (read, write, *_):
        async with ClientSession(read, write, elicitation_callback=elicit) as client:
            await client.initialize()
            await client.list_tools()
            for step in json.loads(steps):
                try:
                    print(json.dumps({"got": str(await run(client, *step))}))
                except Exception as error:
                    print(json.dumps({"error": str(error)}))


asyncio.run(main())
