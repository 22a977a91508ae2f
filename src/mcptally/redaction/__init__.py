"""Finds and replaces secrets in recorded bytes. May import `errors` and no other folder.

`policy` is the entry point: `policy("default").json(frame)`. The recorder imports this folder at
startup, so only `arrow_masking` may import a columnar library.
"""
