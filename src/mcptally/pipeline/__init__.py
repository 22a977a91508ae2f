"""Owns a run, which scores an archive into a store: it plans, gathers, finishes and publishes.

May import the folders that decode, pair, validate and judge messages, the folder `store`, and
`analytics` for a store's views.
"""
