"""A small MCP server for the working folder, which the documentation's commands record.

    python files_server.py [ANYTHING...]

In tests, `npx -y some-server` and `uvx some-server` start this server.
"""

from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("files", log_level="ERROR")


@server.tool(structured_output=False)
def list_directory(path: str) -> str:
    """List what is in a folder."""
    return "\n".join(sorted(entry.name for entry in Path(path).iterdir()))


@server.tool(structured_output=False)
def read_text_file(path: str) -> str:
    """Read a file."""
    if not Path(path).exists():
        raise ToolError(f"ENOENT: no such file or directory, open '{path}'")
    return Path(path).read_text(encoding="utf-8")


if __name__ == "__main__":
    server.run()
