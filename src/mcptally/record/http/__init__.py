"""Implements the recording proxy for Streamable HTTP and legacy HTTP+SSE.

May import `transcript.writer`, `redaction` and `wire`.
"""
