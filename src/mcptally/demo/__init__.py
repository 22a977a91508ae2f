"""Records example servers that fail in known ways, for `mcptally demo`.

Imports no other folder: the recorder is another process. `servers` is the MCP servers, with what is
wrong with each tool; `client` is an MCP client and the calls that it makes.
"""
