"""The client of the samples: `python client.py MODE,MODE COMMAND…`, or a URL for COMMAND."""

import asyncio
import os
import sys

from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from spans import write_spans

write_spans(os.environ.get("SPANS_CLIENT"), "agent")

CALLS = [
    ("price", {"item": "tea", "count": 3}),
    ("order", {"item": "tea", "count": 3}),
    ("order", {"item": "tea", "count": 30}),
    ("order", {"item": "ghost", "count": 1}),
    ("stock", {"item": "tea"}),
    ("stock", {"item": "boom"}),
    ("stock", {"item": "hidden"}),
    ("nosuch", {}),
    ("order", {"item": "tea", "count": "many"}),
    ("price", {"item": "cof\u2028fee", "count": 2}),
]


async def session(target, mode):
    if target[0].startswith("http"):
        transport = streamable_http_client(target[0])
    else:
        server = StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ))
        transport = stdio_client(server)
    async with Client(transport, mode=mode) as client:
        await client.list_tools()
        for tool, arguments in CALLS:
            try:
                await client.call_tool(tool, arguments)
            except MCPError as error:
                print(error, file=sys.stderr)
        await client.get_prompt("greet", {"name": "Jo"})
        together = [client.call_tool("price", {"item": f"i{n}", "count": n}) for n in range(5)]
        await asyncio.gather(*together)


async def main():
    for mode in sys.argv[1].split(","):
        await session(sys.argv[2:], mode)


asyncio.run(main())
