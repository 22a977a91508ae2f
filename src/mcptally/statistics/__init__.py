"""Computes intervals for rates and quantiles, clustered by session, and registers DuckDB functions.

It imports no other folder of mcptally.
"""
