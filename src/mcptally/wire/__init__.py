"""Parses bytes from the wire without I/O: framing, SSE, strict JSON, nesting, content coding.

May import `redaction`, `errors` and no other folder, and nothing columnar: the recorder uses it.
"""
