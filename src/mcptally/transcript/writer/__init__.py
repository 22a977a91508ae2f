"""Writes recordings: events, segments, compression, retention, and the journal before them.

May import `errors`, `plural`, `redaction`, `wire` and `transcript.format`.
"""
