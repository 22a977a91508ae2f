"""Owns the transcript format: writes, finds, reads, checks and redacts transcript files.

May import `wire`, `redaction` and `errors`. The recorder imports `format` and `writer`, so they
must not import columnar libraries.
"""
