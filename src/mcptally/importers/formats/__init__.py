"""Reads other programs' log formats: one module per format, with a function `read`.

May import any module of `importers` except `run`, `registry` and `detect`.
"""
