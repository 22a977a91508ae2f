"""The transcript format: write, find, read, check and redact transcript files.

May import `wire`, `redaction` and `errors`. The recorder imports `format` and `writer`, so these
import nothing columnar.
"""
