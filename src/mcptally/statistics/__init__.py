"""Computes intervals of rates and quantiles with sessions as clusters, and their DuckDB functions.

It imports no other folder of mcptally.
"""
