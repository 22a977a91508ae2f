"""Edits client configuration files to run their servers behind the recorder.

May import `errors` and `redaction`.
"""
