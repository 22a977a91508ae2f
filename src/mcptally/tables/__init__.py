"""Owns the declarations of tables and columns: each column's name, type, unit and meaning.

Each table has a module; `declaration` defines the base classes, `all_tables` lists the tables.
Other modules are helpers for ids, joins, formatted text and values. May import only `redaction`.
"""
