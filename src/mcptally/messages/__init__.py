"""Owns the stages that turn transcript lines into messages and calls, as columns.

    decode → integrity → sessions → pair → tool_definitions, attempts

May import `tables`, `transcript`, `wire`, `process_memory` and `errors`.
"""
