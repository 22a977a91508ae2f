"""JSON-RPC and MCP as they should be: what messages, exchanges and sessions break, as findings.

    traffic → findings       jsonrpc, shapes, lifecycle, progress, http

Each module knows some of the rules in `rules/protocol.toml` and finds them by columns; `rulebook`
runs them all.
"""
