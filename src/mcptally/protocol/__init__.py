"""Checks traffic against JSON-RPC and MCP; violations become findings.

May import `jsonschemas`, `messages`, `rules`, `tables`, `redaction` and `errors`. Each module
applies some rules of `rules/protocol.toml`, `rules/definitions.toml` or `rules/leaks.toml` to whole
columns. `all_rules` checks one partition's messages and calls; `pipeline` calls `definition_lint`
and `leaked_secrets` separately.
"""
