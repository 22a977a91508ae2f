"""Answers questions about stores: predefined ones, SQL, comparisons, explanations and dry runs.

May import `statistics`, `store`, `seeds`, `verdict` and the folders below them, but no folder that
writes stores or formats answers.
"""
