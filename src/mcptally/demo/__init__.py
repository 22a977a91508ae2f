"""Records example servers that fail in known ways, for `mcptally demo`.

This folder imports no other folder, because the recorder runs as a separate process. `servers`
defines the MCP servers and the fault of each tool; `client` is an MCP client and the calls that it
makes.
"""
