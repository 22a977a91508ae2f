"""Turns transcript lines into tables of messages and calls, in these stages.

    decode → integrity → sessions → pair → tool_definitions, attempts

May import `tables`, `transcript`, `wire`, `process_memory` and `errors`.
"""
