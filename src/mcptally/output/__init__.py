"""Presents answers to people and programs: in terminal tables, the HTML report, exports, servers.

May import `pipeline` and lower layers, such as `analytics`, `tables` and `redaction`.

    overview                        from recordings or logs to the summary of `mcptally PATH`
    explore | mcp_server            serve a store to a browser, or over MCP
    html | export                   write a store as a report, or in other formats
    mock | repro                    answer requests from a recording; repeat a recorded call
    render                          answers on stdout
    text_table | formats            aligned text for terminals; formats of rows, as CSV
    whole_file                      files written atomically
"""
