"""Owns a run from an archive to a store: plan, gather and finish each partition, publish.

May import the folders that decode, pair, validate and judge messages, the folder `store`, and
`analytics` for a store's views.
"""
