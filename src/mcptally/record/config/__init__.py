"""Edits clients' configuration files so that their servers run behind the recorder.

May import `errors` and `redaction`.
"""
