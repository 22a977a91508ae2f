"""Owns the declarations of tables and columns: name, type, unit and meaning, each stated once.

One module per table, `declaration` with the base classes, `all_tables` with the list, and helpers
for ids, joins and formatted text. May import nothing else of the package.
"""
