"""What people and programs read: tables, pages, exports, an MCP server."""
