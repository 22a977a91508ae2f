"""Transcript lines to messages and calls, in columns."""
