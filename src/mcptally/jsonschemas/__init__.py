"""Validates calls against recorded JSON Schemas with bounded cost, and compares definitions.

The schemas are untrusted: no other document is fetched, Python's `re` never runs a pattern, and
schemas that may take too long are not used. May import `rules`, `tables` and lower layers.
"""
