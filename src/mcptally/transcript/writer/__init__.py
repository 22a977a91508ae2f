"""Writes recordings: journal, events, segments, compression and retention.

May import `errors`, `plural`, `redaction`, `wire` and `transcript.format`.
"""
