"""Owns the declarations of tables and columns: name, type, unit and meaning, each stated once.

There is one module per table; `declaration` has the base classes, `all_tables` the list. Other
modules are helpers for ids, joins, formatted text and values. May import only `redaction`.
"""
