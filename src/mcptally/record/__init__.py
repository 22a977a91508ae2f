"""Records MCP traffic: relays bytes unchanged and writes a redacted copy to transcript files.

May import `wire`, `redaction`, `transcript` and `errors`, but not polars or pyarrow: the client
waits while the recorder starts.
"""
