"""A client on the Python SDK 1.x, for Traceloop's instrumentation.

python client1.py COMMAND…
"""

import asyncio
import os
import sys

from spans import write_spans

write_spans(os.environ.get("SPANS_CLIENT"), "agent")  # before the SDK is imported

from mcp import ClientSession, StdioServerParameters  # noqa: E402
from mcp.client.stdio import stdio_client  # noqa: E402

CALLS = [
    ("price", {"item": "tea", "count": 3}),
    ("order", {"item": "tea", "count": 3}),
    ("order", {"item": "tea", "count": 30}),
    ("stock", {"item": "boom"}),
    ("nosuch", {}),
]


async def main():
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ))
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await session.list_tools()
        for tool, arguments in CALLS:
            await session.call_tool(tool, arguments)


asyncio.run(main())
