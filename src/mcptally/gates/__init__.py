"""Checks a store or a comparison against limits, and writes the results as reports for CI.

It imports analytics, output, rules and the folders below them.
"""
