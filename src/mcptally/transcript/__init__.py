"""The transcript format: find, read, check and redact transcript files."""
