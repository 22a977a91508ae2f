"""Owns JSON Schemas from recorded traffic: validation within limits on cost, and comparison.

The schemas are untrusted: nothing is fetched, no pattern is run by Python's `re`, and schemas that
may take too long are not used. May import `rules`, `tables` and the folders below them.
"""
