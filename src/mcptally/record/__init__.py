"""Records MCP traffic: relays bytes unchanged and writes a redacted copy to transcript files.

May import `wire`, `redaction`, `transcript` and `errors`. It must not import polars or pyarrow,
because the client waits while the recorder starts.
"""
