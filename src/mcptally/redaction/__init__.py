"""Finds secrets in recorded bytes and replaces them; may import `errors` and no other folder.

`policy` is the entry point: `policy("default").json(frame)`. The recorder imports this folder at
start, so only `arrow_masking` may import a columnar library.
"""
