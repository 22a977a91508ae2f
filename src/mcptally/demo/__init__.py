"""Records example servers that fail in known ways, for `mcptally demo`.

Imports no other folder: the recorder is another process. `servers` contains the MCP servers and
each tool's faults; `client` is an MCP client with its calls.
"""
