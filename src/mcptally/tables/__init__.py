"""Owns the declarations of tables and columns: name, type, unit and meaning, each stated once.

One module per table, `declaration` with the base classes, `all_tables` with the list, and helpers
for ids, joins, formatted text, and values as text. May import only `redaction`.
"""
