"""Owns a run: scores an archive into a store by planning, gathering, finishing and publishing.

May import the folders that decode, pair, validate and judge messages, the folder `store`, and
`analytics` for a store's views.
"""
