"""Computes intervals for rates and quantiles, clustered by session, and registers DuckDB functions.

This folder imports no other folder of mcptally.
"""
