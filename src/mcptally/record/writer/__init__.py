"""Writes recordings: events, segments, compression and retention.

May import `record.limits`, `record.log`, `redaction`, `transcript` and `wire`.
"""
