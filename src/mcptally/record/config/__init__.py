"""Edits client configuration files so that their servers run behind the recorder.

May import `errors` and `redaction`.
"""
