"""Reads other programs' log formats: one module per format, with a function `read`.

May import the modules of `importers` except `run`, `registry` and `detect`.
"""
