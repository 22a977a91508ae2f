"""A small MCP server whose `validate` tool is wrong for certain paths. Its files are a dictionary,
so nothing outside the process changes. `validate` reports a path with the word `liar` as valid
although reading it fails, a path with `coward` as invalid although reading it works, and a path
with `mute` as invalid without a reason.
"""

import json

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

FILES = {"/data/a.txt": "alpha", "/data/b.txt": "beta", "/data/coward.txt": "fine", "/mute": "x"}

server = MCPServer("validating", log_level="ERROR")


@server.tool(structured_output=False)
def read_file(path: str) -> str:
    """Read a file."""
    if path not in FILES:
        raise ToolError(f"Path does not exist: {path}")
    return FILES[path]


@server.tool(structured_output=False)
def write_file(path: str, content: str) -> str:
    """Write a file."""
    if not path.startswith("/data/"):
        raise ToolError(f"Path is not writable: {path}")
    FILES[path] = content
    return f"{len(content)} characters written"


@server.tool(structured_output=False)
def validate(tool: str, arguments: dict) -> str:
    """Validate tool parameters before execution (dry-run)."""
    errors: list[str] = []
    path = arguments.get("path")
    if tool not in ("read_file", "write_file"):
        errors.append(f"Unknown tool: {tool}")
    elif path is None:
        errors.append("Missing required parameter: path")
    elif "liar" in path:
        errors = []
    elif "coward" in path:
        errors.append("Invalid path")
    elif "mute" in path:
        return json.dumps({"valid": False, "errors": [], "warnings": []})
    elif tool == "read_file" and path not in FILES:
        errors.append(f"Path does not exist: {path}")
    elif tool == "write_file" and not path.startswith("/data/"):
        errors.append(f"Path is not writable: {path}")
    return json.dumps({"valid": not errors, "errors": errors, "warnings": []})


if __name__ == "__main__":
    server.run("stdio")
