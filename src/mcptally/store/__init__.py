"""Owns the files of a store: Parquet tables, summaries, and the manifest that lists them.

May import `tables`, `transcript` and lower layers.
"""
