"""Serves a Python server's tools with one of several SDKs: serve.py SDK MODULE, or --plan MODULE."""

import asyncio
import functools
import importlib
import inspect
import json
import sys

import kit


def wrapped(function, error_type):
    """The tool with the author's own errors raised as the SDK's error for callers."""

    @functools.wraps(function)
    async def run(**arguments):
        try:
            result = function(**arguments)
            return await result if inspect.isawaitable(result) else result
        except kit.Refused as error:
            raise error_type(str(error)) from None

    run.__signature__ = inspect.signature(function)
    return run


def mcp2(name):
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer(name)
    for function, _ in kit.TOOLS:
        server.tool(structured_output=False)(wrapped(function, ToolError))
    server.run()


def mcp1(name):
    from mcp.server.fastmcp import FastMCP
    from mcp.server.fastmcp.exceptions import ToolError

    server = FastMCP(name)
    for function, _ in kit.TOOLS:
        server.tool()(wrapped(function, ToolError))
    server.run()


def fastmcp(name):
    from fastmcp import FastMCP
    from fastmcp.exceptions import ToolError

    server = FastMCP(name)
    for function, _ in kit.TOOLS:
        server.tool(wrapped(function, ToolError))
    server.run(show_banner=False)


def plain(name):
    """JSON-RPC by hand: exceptions become -32603 with their text."""
    tools = {function.__name__: function for function, _ in kit.TOOLS}
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        params = request.get("params") or {}
        if request["method"] == "initialize":
            info = {"name": name, "version": "1.0"}
            version = params["protocolVersion"]
            reply["result"] = {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
        elif request["method"] == "tools/list":
            reply["result"] = {
                "tools": [
                    {"name": key, "inputSchema": kit.schema(tool)} for key, tool in tools.items()
                ]
            }
        elif request["method"] == "tools/call":
            try:
                result = tools[params["name"]](**params["arguments"])
                text = asyncio.run(result) if inspect.isawaitable(result) else result
                reply["result"] = {"content": [{"type": "text", "text": text.strip()}]}
            except Exception as error:
                reply["error"] = {"code": -32603, "message": str(error) or type(error).__name__}
        else:
            reply["error"] = {"code": -32601, "message": "Method not found"}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    sdk, module = sys.argv[1:]
    importlib.import_module(module)
    if sdk == "--plan":
        print(json.dumps(kit.plan()))
    else:
        {"mcp2": mcp2, "mcp1": mcp1, "fastmcp": fastmcp, "plain": plain}[sdk](module)
