"""Writes answers for people and programs: terminal tables, the HTML report, exports, an MCP server.

May import `pipeline` and the folders below it, such as `analytics`, `tables` and `redaction`.

    mcp_server | html | export      each reads a store and writes one kind of output
    render                          answers on stdout, in five formats
    text_table                      aligned text for terminals
    whole_file                      files written atomically
"""
