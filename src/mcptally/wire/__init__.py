"""Parses bytes from the wire without I/O: framing, SSE, strict JSON, nesting, content coding.

May import `redaction` and `errors`, but no other folder and no columnar library, because the
recorder imports this folder.
"""
