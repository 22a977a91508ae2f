"""Checks a store or a comparison against limits, and writes reports for CI.

May import `analytics`, `output`, `rules` and lower layers.
"""
