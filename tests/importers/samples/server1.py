"""The same server as in server.py, for the Python SDK 1.x."""

import os

from mcp.server.fastmcp import FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from spans import write_spans

write_spans(os.environ.get("SPANS_SERVER"), "orders")
server = FastMCP("orders")


@server.tool()
def price(item: str, count: int) -> dict:
    """What an order costs."""
    return {"item": item, "cents": 250 * count}


@server.tool()
def order(item: str, count: int) -> str:
    """Place an order."""
    if count > 10:
        raise ToolError("Quantity must be at most 10")
    return f"ordered {count} of {item}"


@server.tool()
def stock(item: str) -> str:
    """How much there is."""
    if item == "boom":
        raise RuntimeError("connection refused: warehouse:5432")
    return "12"


server.run("stdio")
