"""Writes recordings: events, segments, compression, retention.

May import `errors`, `plural`, `redaction`, `wire` and `transcript.format`.
"""
