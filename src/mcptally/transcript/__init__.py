"""The transcript format: find, read, check and redact transcript files.

May import `wire`, `redaction` and `errors`. The recorder imports `format`, `discover` and `files`,
so those three import nothing columnar.
"""
