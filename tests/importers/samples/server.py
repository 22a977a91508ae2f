"""The server of the samples: prices, orders and stock, with typical mistakes."""

import os
import sys

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from spans import write_spans

write_spans(os.environ.get("SPANS_SERVER"), "orders")
server = MCPServer("orders", version="3.1.0")


@server.tool()
def price(item: str, count: int) -> dict:
    """What an order costs."""
    return {"item": item, "cents": 250 * count}


@server.tool()
def order(item: str, count: int) -> str:
    """Place an order."""
    if count > 10:
        raise ToolError("Quantity must be at most 10")
    if item == "ghost":
        raise ToolError("Item not found: ghost")
    return f"ordered {count} of {item}"


@server.tool()
def stock(item: str) -> str:
    """How much there is."""
    if item == "boom":
        raise RuntimeError("connection refused: warehouse:5432")
    return "Error: upstream returned 502 Bad Gateway" if item == "hidden" else "12"


@server.prompt()
def greet(name: str) -> str:
    return f"Greet {name}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
